// The value type: operators equal arithmetic.h, limits equal the format's facts, fmt round-trips, Eigen solves.
#include <ampscope/formats/eigen.h>
#include <ampscope/formats/fmt.h>

#include <doctest/doctest.h>

#include <Eigen/Dense>

#include <cmath>
#include <random>
#include <unordered_set>

using namespace amp;

namespace {

using fp16 = Float<format("fp16")>;
using bf16 = Float<format("bf16")>;
using e4m3 = Float<format("e4m3")>;
using e5m2 = Float<format("e5m2")>;
using fnuz = Float<format("e4m3fnuz")>;
using e2m1 = Float<format("e2m1")>;
using fp32 = Float<format("fp32")>;

static_assert(sizeof(e4m3) == 1 && sizeof(fp16) == 2 && sizeof(fp32) == 4);
static_assert(float(fp16{1.0f} / fp16{3}) == 0.333251953125f, "usable in constant expressions");
static_assert(std::numeric_limits<fp32>::digits10 == std::numeric_limits<float>::digits10 &&
              std::numeric_limits<fp32>::max_digits10 == std::numeric_limits<float>::max_digits10 &&
              std::numeric_limits<fp32>::min_exponent == std::numeric_limits<float>::min_exponent &&
              std::numeric_limits<fp32>::max_exponent == std::numeric_limits<float>::max_exponent &&
              std::numeric_limits<fp32>::min_exponent10 == std::numeric_limits<float>::min_exponent10 &&
              std::numeric_limits<fp32>::max_exponent10 == std::numeric_limits<float>::max_exponent10 &&
              std::numeric_limits<fp32>::digits == std::numeric_limits<float>::digits);
static_assert(float(std::numeric_limits<fp32>::min()) == std::numeric_limits<float>::min() &&
              float(std::numeric_limits<fp32>::max()) == std::numeric_limits<float>::max() &&
              float(std::numeric_limits<fp32>::denorm_min()) == std::numeric_limits<float>::denorm_min() &&
              float(std::numeric_limits<fp32>::epsilon()) == std::numeric_limits<float>::epsilon());
static_assert(std::numeric_limits<e4m3>::max_exponent == 9 && !std::numeric_limits<e4m3>::has_infinity &&
              std::numeric_limits<e4m3>::has_quiet_NaN);
static_assert(!std::numeric_limits<e2m1>::has_quiet_NaN);
// 10, 100 and 1000 lie in the top binade.
static_assert(std::numeric_limits<Float<format("e3m3")>>::max_exponent10 == 1 &&
              std::numeric_limits<e2m1>::max_exponent10 == 0 && std::numeric_limits<e4m3>::max_exponent10 == 2 &&
              std::numeric_limits<fp16>::max_exponent10 == 4);
// Just above and just below a tie of FP16; rounded to double both would be the tie. Likewise around 65520, where
// overflow begins.
static_assert(float(fp16{1.00048828125L + 0x1p-60L}) == 1.0009765625f &&
              float(fp16{-1.00146484375L + 0x1p-60L}) == -1.0009765625f &&
              float(fp16{65520.0L - 0x1p-45L}) == 65504.0f && float(fp16{0x1p-25L + 0x1p-85L}) == 0x1p-24f);
static_assert(float(fp16{0x1p-16000L}) == 0.0f && isinf(fp16{0x1p+16000L}) &&
              isnan(fp16{std::numeric_limits<long double>::quiet_NaN()}));

template <class F>
void check_all_codes() {
    for (std::uint32_t code = 0; code <= F::format.code_mask(); ++code) {
        const F x = F::from_code(code);
        if (isnan(x)) {
            CHECK_FALSE(x == x);
            CHECK((x <=> x) == std::partial_ordering::unordered);
            continue;
        }
        CHECK(F{float(x)}.code() == x.code());
        CHECK(float(-x) == -float(x));
        CHECK(float(abs(x)) == std::fabs(float(x)));
        if (isfinite(x)) CHECK(F{std::stod(fmt::format("{}", x))}.code() == x.code());
    }
}

} // namespace

TEST_CASE("codes, signs and decimals of every value") {
    check_all_codes<fp16>();
    check_all_codes<e4m3>();
    check_all_codes<e5m2>();
    check_all_codes<fnuz>();
    check_all_codes<e2m1>();
}

TEST_CASE("operators round as _Float16 arithmetic does in float, twice the precision and more") {
    std::mt19937 random(2);
    for (int i = 0; i < 200000; ++i) {
        const fp16 a = fp16::from_code(static_cast<std::uint32_t>(random())),
                   b = fp16::from_code(static_cast<std::uint32_t>(random()));
        const float x{a}, y{b};
        const auto same = [](fp16 got, float exact) {
            return std::isnan(exact) ? isnan(got) : got.code() == fp16{exact}.code();
        };
        CHECK(same(a + b, x + y));
        CHECK(same(a - b, x - y));
        CHECK(same(a * b, x * y));
        CHECK(same(a / b, x / y));
        CHECK((a < b) == (x < y));
        CHECK((a == b) == (x == y));
    }
}

TEST_CASE("integers and other formats convert in one rounding") {
    CHECK(float(fp16{2049}) == 2048.0f);
    CHECK(float(fp16{-2051}) == -2052.0f);
    CHECK(isinf(fp16{70000}));
    CHECK(float(e4m3{fp16{464.0f}}) == 448.0f);
    CHECK(float(bf16{std::uint64_t{0x8000000000000001}}) == 0x1p63f);
    CHECK(float(fp16{std::numeric_limits<std::int64_t>::min()}) == -std::numeric_limits<float>::infinity());
}

TEST_CASE("equal values hash alike") {
    const std::unordered_set<fp16> set{fp16{0.0f}, fp16{-0.0f}, fp16{1.0f}};
    CHECK(set.size() == 2);
}

TEST_CASE("fmt") {
    CHECK(fmt::format("{}", fp16{0.1f}) == "0.1");
    CHECK(fmt::format("{:x}", fp16{0.1f}) == "0x2e66");
    CHECK(fmt::format("{:.4f}", e4m3{0.1f}) == "0.1016");
    CHECK(fmt::format("{}", std::numeric_limits<bf16>::max()) == "3.39e+38");
    CHECK(fmt::format("{} {}", fp16{-INFINITY}, fp16{NAN}) == "-inf nan");
}

TEST_CASE("Eigen multiplies and solves in the format") {
    std::mt19937 random(4);
    const auto uniform = [&] { return static_cast<float>(random() % 2001) / 1000 - 1; };
    Eigen::Matrix<fp16, 8, 8> a;
    Eigen::Matrix<fp16, 8, 1> x;
    for (int i = 0; i < 8; ++i) {
        x(i) = fp16{uniform()};
        for (int j = 0; j < 8; ++j) a(i, j) = fp16{uniform() + (i == j ? 4.0f : 0.0f)};
    }
    const Eigen::Matrix<fp16, 8, 1> b = a * x;
    const Eigen::Matrix<fp16, 8, 1> lu = a.partialPivLu().solve(b), qr = a.householderQr().solve(b);
    for (int i = 0; i < 8; ++i) {
        CHECK(std::fabs(float(lu(i)) - float(x(i))) < 0.02f); // the system is well-conditioned; FP16 has 11 bits
        CHECK(std::fabs(float(qr(i)) - float(x(i))) < 0.02f);
    }
    const Eigen::Matrix<fp16, 1, 2> row{fp16{2048.0f}, fp16{1.0f}};
    const Eigen::Matrix<fp16, 2, 1> ones = Eigen::Matrix<fp16, 2, 1>::Constant(fp16{1.0f});
    CHECK(float((row * ones)(0)) == 2048.0f); // 2049 is not an FP16 value: sums are rounded to FP16, not to float
    const Eigen::Matrix<bf16, 2, 2> m = Eigen::Matrix<bf16, 2, 2>::Identity() * bf16{3.0f};
    CHECK(float(m.inverse()(0, 0)) == 0.333984375f);
}

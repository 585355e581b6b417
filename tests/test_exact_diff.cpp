// Comparisons and cast errors of types that a double cannot hold: 64-bit integers, and squares of FP64. The oracle
// computes with integers of any size, in units of 2^-1074.
#include "tool.h"

#include <ampscope/formats/random.h>
#include <ampscope/sim/analysis/cast_error.h>
#include <ampscope/sim/analysis/tensor_diff.h>

#include <doctest/doctest.h>

#include <boost/multiprecision/cpp_bin_float.hpp>
#include <boost/multiprecision/cpp_int.hpp>

#include <bit>
#include <cmath>
#include <map>

using namespace amp;
using namespace amp::test;

namespace {

using Integer = boost::multiprecision::cpp_int;
using Real = boost::multiprecision::cpp_bin_float_100;

/// x in units of 2^-1074, given the bits of an F64, I64 or U64.
Integer exactly(DType dtype, std::uint64_t bits) {
    if (dtype == DType::u64) return Integer(bits) << 1074;
    if (dtype == DType::i64) return Integer(std::bit_cast<std::int64_t>(bits)) * (Integer(1) << 1074);
    const auto field = static_cast<unsigned>(bits >> 52 & 0x7ff);
    const Integer fraction = bits & 0xfffffffffffff;
    const Integer magnitude = field == 0 ? fraction : (fraction + (Integer(1) << 52)) << (field - 1);
    return bits >> 63 != 0 ? Integer(-magnitude) : magnitude;
}

int log2_of(const Integer& x) { return static_cast<int>(msb(x)); }

/// The results for two arrays of one type, by definition.
struct Expected {
    std::uint64_t equal = 0;
    std::map<int, std::uint64_t> ulps, relative;
    Integer difference_squares, a_squares;
    Real max_ulps = 0;

    Expected(DType dtype, const std::vector<std::uint64_t>& a, const std::vector<std::uint64_t>& b) {
        for (std::size_t i = 0; i < a.size(); ++i) {
            const Integer x = exactly(dtype, a[i]), y = exactly(dtype, b[i]), d = abs(x - y);
            a_squares += x * x;
            difference_squares += d * d;
            if (d == 0) {
                ++equal;
                continue;
            }
            const Integer larger = std::max(Integer(abs(x)), Integer(abs(y)));
            const Integer unit = dtype != DType::f64 ? Integer(1) << 1074 // the ulp of an integer is 1
                                                     : Integer(1) << std::max(0, log2_of(larger) - 52);
            int k = log2_of(d) - log2_of(unit);
            if (d > (unit << std::max(0, k)) >> std::max(0, -k)) ++k;
            ++ulps[k];
            int r = log2_of(d) - log2_of(larger);
            if ((d << std::max(0, -r)) < (larger << std::max(0, r))) --r;
            ++relative[r];
            max_ulps = std::max(max_ulps, Real(d) / Real(unit));
        }
    }
    [[nodiscard]] double relative_norm() const {
        return static_cast<double>(sqrt(Real(difference_squares)) / sqrt(Real(a_squares)));
    }
};

std::string bytes_of(const std::vector<std::uint64_t>& words) {
    return {reinterpret_cast<const char*>(words.data()), words.size() * 8};
}

std::vector<std::uint64_t> bits_of(const std::vector<double>& values) {
    std::vector<std::uint64_t> bits;
    for (const double x : values) bits.push_back(std::bit_cast<std::uint64_t>(x));
    return bits;
}

TensorDiff compare(DType dtype, const std::vector<std::uint64_t>& a, const std::vector<std::uint64_t>& b,
                   int threads = 2) {
    const Scratch scratch;
    const auto x = open_tensor_file(write_file(scratch / "a.bin", bytes_of(a)), {.dtype = dtype});
    const auto y = open_tensor_file(write_file(scratch / "b.bin", bytes_of(b)), {.dtype = dtype});
    return compare_tensors({*x, 0}, {*y, 0}, 3, threads);
}

void check(DType dtype, const std::vector<std::uint64_t>& a, const std::vector<std::uint64_t>& b) {
    const Expected expected(dtype, a, b);
    const TensorDiff diff = compare(dtype, a, b);
    CAPTURE(info(dtype).name);
    CHECK(diff.of(DiffClass::equal) == expected.equal);
    CHECK(diff.ulps == expected.ulps);
    CHECK(diff.relative == expected.relative);
    CHECK(diff.max_ulps == doctest::Approx(static_cast<double>(expected.max_ulps)).epsilon(1e-15));
    CHECK(diff.relative_norm() == doctest::Approx(expected.relative_norm()).epsilon(1e-12));
    CHECK(std::isfinite(diff.relative_norm()));
    CHECK(diff.difference_squares == compare(dtype, a, b, 3).difference_squares);
}

/// Words of all magnitudes, and others that are near them or far away.
std::pair<std::vector<std::uint64_t>, std::vector<std::uint64_t>> random_pairs(std::uint64_t seed, std::size_t count,
                                                                               std::uint64_t mask) {
    const RandomKey key{.seed = seed};
    const auto word = [&](std::uint64_t i) { return std::uint64_t{key.word(2 * i)} << 32 | key.word(2 * i + 1); };
    std::vector<std::uint64_t> a, b;
    for (std::size_t i = 0; i < count; ++i) {
        a.push_back(word(3 * i) >> word(3 * i + 1) % 64 & mask);
        const std::uint64_t near = word(3 * i + 2) >> (32 + i % 32);
        b.push_back((i % 7 == 0 ? word(3 * i + 2) : i % 2 == 0 ? a.back() ^ near : a.back() + near) & mask);
    }
    return {a, b};
}

} // namespace

TEST_CASE("64-bit integers are compared as integers") {
    for (const DType dtype : {DType::i64, DType::u64}) {
        const std::uint64_t p53 = std::uint64_t{1} << 53;
        const TensorDiff one = compare(dtype, {p53, 7, 0}, {p53 + 1, 7, 0});
        CHECK(one.differing() == 1);
        CHECK(one.max_ulps == 1);
        CHECK(one.max_absolute == 1);
        check(dtype, {0, 1, p53, p53 + 1, ~std::uint64_t{0} >> 1, std::uint64_t{1} << 63, ~std::uint64_t{0}, 5},
              {1, 1, p53 + 1, p53, std::uint64_t{1} << 63, ~std::uint64_t{0}, ~std::uint64_t{0} >> 1, 5});
        const auto [a, b] = random_pairs(1, 20'000, ~std::uint64_t{0});
        check(dtype, a, b);
    }
    const Scratch scratch;
    const std::uint64_t odd = (std::uint64_t{1} << 53) + 1;
    const double even = 0x1p53;
    const auto x = open_tensor_file(write_file(scratch / "a.bin", bytes_of({odd})), {.dtype = DType::i64});
    const auto y = open_tensor_file(write_file(scratch / "b.bin", bytes_of(bits_of({even}))), {.dtype = DType::f64});
    CHECK(compare_tensors({*x, 0}, {*y, 0}, 1, 1).of(DiffClass::finite) == 1);
    CHECK(compare_tensors({*x, 0, 3}, {*x, 0, 3}, 1, 1).differing() == 0);
    CHECK(compare_tensors({*x, 0, 3}, {*y, 0, 3}, 1, 1).differing() == 1); // equal scales that are not a power of two
}

TEST_CASE("FP64 of any magnitude: nothing underflows, overflows, or is infinitely far") {
    const double tiny = 0x1p-1074, max = 0x1.fffffffffffffp1023;
    CHECK(compare(DType::f64, bits_of({1e-200}), bits_of({1.5e-200})).relative_norm() == doctest::Approx(0.5));
    CHECK(compare(DType::f64, bits_of({1e200}), bits_of({1.5e200})).relative_norm() == doctest::Approx(0.5));
    const TensorDiff neighbours = compare(DType::f64, bits_of({tiny, 3 * tiny}), bits_of({2 * tiny, 0}));
    CHECK(neighbours.max_ulps == 3);
    CHECK(neighbours.max_absolute == 3 * tiny);
    // greater than any double
    CHECK(std::isinf(compare(DType::f64, bits_of({max}), bits_of({-max})).max_absolute));
    check(DType::f64, bits_of({tiny, 0, 1, max, max, -1e300, 1e-300, 0x1p-1022, -0x1p-1022, 3 * tiny, 1e155, 1e-155}),
          bits_of({0, tiny, 1, -max, 1, 1e300, 1.1e-300, 0x1p-1022 - tiny, tiny, 5 * tiny, 1.5e155, 1.5e-155}));
    check(DType::f64, bits_of({1, 1e-200}), bits_of({1, 1.5e-200})); // a small difference next to a large number
    const auto [a, b] = random_pairs(2, 20'000, 0xbfefffffffffffff);
    check(DType::f64, a, b);
}

TEST_CASE("sums of squares keep their exponents") {
    SquareSum sum;
    for (int i = 0; i < 3; ++i) sum.add(1.5, -700);
    CHECK(sum.value() == 0);
    CHECK(sum.parts() == std::pair(0.84375, 3 - 1400));
    CHECK(SquareSum::read(sum.text())->parts() == sum.parts());
    CHECK(SquareSum::read(SquareSum(0.1).text())->value() == 0.1);
    sum.add(1e200);
    CHECK(std::isinf(sum.value()));
    CHECK(sum.root().first * std::ldexp(1.0, sum.root().second) == doctest::Approx(1e200));
    for (const char* bad :
         {"", "0x", "0x1", "0x1p", "0x1p9999", "1p3", "0x1p3 ", "0x20000000000000p1", "0x1p-2147483648"})
        CHECK_MESSAGE(!SquareSum::read(bad), bad);
}

TEST_CASE("errors of casts are those of the number, not of its nearest double") {
    const Scratch scratch;
    const auto errors = [&](DType dtype, const std::vector<std::uint64_t>& words, const Cast& cast) {
        const auto file = open_tensor_file(write_file(scratch / "x.bin", bytes_of(words)), {.dtype = dtype});
        return measure_errors(*file, 0, {&cast, 1}, 2)[0];
    };
    const std::uint64_t p53 = std::uint64_t{1} << 53;
    for (const DType dtype : {DType::i64, DType::u64}) {
        CHECK(errors(dtype, {p53 + 1}, {format("fp32")}).noise.value() == 1);
        // Halfway between two FP32 values but for the last bit, which a double would lose: it must be rounded up, not
        // to even.
        CHECK(errors(dtype, {(p53 << 8) + (p53 >> 16) + 1}, {format("fp32")}).noise.value() == std::pow(0x1p37 - 1, 2));
    }
    const CastError small = errors(DType::f64, bits_of({1e-200}), {.format = format("bf16"), .scale = 0x1p664});
    CHECK(small.sqnr() > 40);
    CHECK(small.sqnr() < 80);
    CHECK(errors(DType::f64, bits_of({0x1p-700}), {.format = format("bf16"), .scale = 0x1p700}).sqnr() == INFINITY);
    CHECK(errors(DType::f64, bits_of({1e-200}), {.format = format("bf16")}).sqnr() == doctest::Approx(0));
}

TEST_CASE("the fast way through doubles equals the definition") {
    const Scratch scratch;
    const RandomKey key{.seed = 3};
    std::vector<float> values;
    for (std::uint32_t i = 0; i < 70'000; ++i) // two blocks
        values.push_back(std::bit_cast<float>(i < 200 ? i : i % 3 == 0 ? key.word(i) : 0x30000000 + key.word(i) / 8));
    const std::string bytes(reinterpret_cast<const char*>(values.data()), values.size() * 4);
    const auto file = open_tensor_file(write_file(scratch / "a.bin", bytes), {.dtype = DType::f32});
    for (const FormatSpec& f : formats)
        for (const Rounding rounding : {Rounding::nearest_even, Rounding::up, Rounding::stochastic})
            for (const Subnormals subnormals : {Subnormals::keep, Subnormals::flush}) {
                const Policy policy{.rounding = rounding, .subnormals = subnormals};
                // Beyond 2^150 the plain code is used; both scales are divided by the same number, so casts are equal.
                const Cast usual{f, policy, 1024, 16}, large{f, policy, 0x1p210, 0x1p204};
                const CastError fast = measure_errors(*file, 0, {&usual, 1}, 1)[0];
                const CastError plain = measure_errors(*file, 0, {&large, 1}, 2)[0];
                CAPTURE(f.name);
                CHECK(fast.compared == plain.compared);
                CHECK(fast.excluded == plain.excluded);
                CHECK(fast.nonzero == plain.nonzero);
                const auto moved = [](std::pair<double, int> parts) {
                    return std::pair(parts.first, parts.second - 400);
                };
                CHECK(moved(fast.signal.parts()) == plain.signal.parts());
                if (!fast.noise.is_zero()) CHECK(moved(fast.noise.parts()) == plain.noise.parts());
                CHECK(fast.noise.is_zero() == plain.noise.is_zero());
                CHECK(fast.max_relative == plain.max_relative);
                CHECK(fast.sum_relative == plain.sum_relative);
            }
}

TEST_CASE("the tools say what differs") {
    const Scratch scratch;
    const std::uint64_t p53 = std::uint64_t{1} << 53;
    const auto raw = [&](const char* name, const std::vector<std::uint64_t>& words) {
        return write_file(scratch / name, bytes_of(words)).string() + " ";
    };
    const std::string integers = raw("a.bin", {p53, 1}) + raw("b.bin", {p53 + 1, 1});
    const Outcome o = run_command(AMP_DIFF " " + integers + "--dtype I64");
    CHECK(o.code == 0);
    CHECK(contains(o.out, "They differ: 1 of 2 elements (50.0 %)"));
    CHECK(contains(o.out, "a[0]: 9.0072e+15 (0x0020000000000000, 0x20000000000000) and"));
    CHECK(contains(o.out, " 0x20000000000001"));
    CHECK(run_command(AMP_DIFF " " + integers + "--dtype U64 --gate 'differ<1e-9'").code == 3);
    const std::string small = raw("c.bin", bits_of({1e-200})) + raw("d.bin", bits_of({1.5e-200}));
    CHECK(run_command(AMP_DIFF " " + small + "--dtype F64 --gate 'norm<1%'").code == 3);
    const std::string large = raw("e.bin", bits_of({1e200})) + raw("f.bin", bits_of({1.5e200}));
    CHECK(!contains(run_command(AMP_DIFF " " + large + "--dtype F64").out, "nan"));
    CHECK(!contains(run_command(AMP_HISTOGRAM " " + raw("b.bin", {p53 + 1}) + "--dtype I64 --error --format fp32").out,
                    "exact"));
    // A report keeps sums that FP64 cannot hold, so merging it gives the same report.
    const std::string report = (scratch / "r.json").string(), errors = " --error --format bf16 --scale 2^664 --json ";
    REQUIRE(run_command(AMP_HISTOGRAM " " + raw("c.bin", bits_of({1e-200})) + "--dtype F64" + errors + report).code ==
            0);
    const Outcome merged = run_command(AMP_HISTOGRAM " --merge " + report + errors + "-");
    CHECK(merged.code == 0);
    const auto error_in = [](const std::string& text) {
        return nlohmann::json::parse(text)["total"]["formats"]["bf16"]["scales"][0]["error"].dump();
    };
    CHECK(error_in(merged.out) == error_in(read_file(report)));
}

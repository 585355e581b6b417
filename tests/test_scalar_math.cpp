// Elementary functions: a sample of the sweep, and results at the ends of the range.
#include "scalar_math_proof.h"

using namespace amp;
using namespace amp::test;

TEST_CASE("a sample of all floats") {
    for (const Function& f : functions) {
        std::atomic<std::uint64_t> misrounded = 0;
        prove(
            fmt::format("{}: error within its bound, rounded once to 16 and 8 bits", f.name), std::uint64_t{1} << 32,
            [&](std::uint64_t i, Tally& tally) { check_function(f, static_cast<std::uint32_t>(i), tally, misrounded); },
            {0, 40009});
        CHECK(misrounded == 0);
    }
}

TEST_CASE("estimates that decide a rounding: a sample of all floats, and those near the zeros of derivatives") {
    for (const Estimate& f : estimates) {
        const auto check = [&](std::uint64_t i, Tally& tally) {
            check_estimate(f, static_cast<std::uint32_t>(i), tally);
        };
        prove(fmt::format("estimate of {}", f.name), std::uint64_t{1} << 32, check, {0, 4001});
        const std::uint32_t begin = std::bit_cast<std::uint32_t>(-0.75F), end = std::bit_cast<std::uint32_t>(-1.28F);
        prove(fmt::format("estimate of {} from -0.75 to -1.28", f.name), end - begin,
              [&](std::uint64_t i, Tally& tally) { check(begin + i, tally); }, {0, 31});
        Tally tally;
        std::uint64_t operands = 0;
        for (float x = -5; x < 5; x += 0x1p-10F, ++operands) check(std::bit_cast<std::uint32_t>(x), tally);
        report(fmt::format("estimate of {} from -5 to 5", f.name), tally);
        CHECK(tally.cases > operands - operands / 100); // or it is of no use
    }
}

TEST_CASE("sine and cosine of angles up to 2^24, to 2^-48") {
    // Evenly spaced floats, and those nearest to multiples of pi / 2, where one of the two nearly vanishes.
    std::vector<float> angles = {0, 0x1p-149F, 0x1p-126F, 0x1p-30F, 0x1p24F};
    for (std::uint32_t bits = std::bit_cast<std::uint32_t>(0x1p-40F); bits < std::bit_cast<std::uint32_t>(0x1p24F);
         bits += 200003)
        angles.push_back(std::bit_cast<float>(bits));
    const Exact quarter = boost::math::constants::half_pi<Exact>();
    for (int k = 1; k < 10680000; k = k < 100 ? k + 1 : k + k / 50)
        angles.push_back(Exact(quarter * k).convert_to<float>());
    Tally tally;
    for (const float x : angles) {
        const math::SinCos got = math::sin_cos(x);
        const auto check = [&](double value, const Exact& want, const char* name) {
            const bool near = want == 0 ? value == 0 : fabs(Exact(value) / want - 1) < 0x1p-48;
            tally.expect(near, true, [&] { return fmt::format("{}({:a}) = {:a}", name, x, value); });
        };
        check(got.sin, sin(Exact(x)), "sin");
        check(got.cos, cos(Exact(x)), "cos");
    }
    CHECK(angles.size() > 2000);
    report("sine and cosine, to 2^-48", tally);
    CHECK(std::isnan(math::sin_cos(std::numeric_limits<double>::quiet_NaN()).sin));
}

TEST_CASE("functions are computed at compile time too") {
    static_assert(math::exp(0) == 1 && math::expm1(0) == 0 && math::log(1) == 0 && math::tanh(0) == 0);
    static_assert(math::sigmoid(0) == 0.5);
    constexpr double e = math::exp(1), half = math::log(0.5);
    CHECK(e == math::exp(1));
    CHECK(half == math::log(0.5));
}

TEST_CASE("near zero results keep the side of a tie that the exact value is on") {
    const FormatSpec bf16 = format("bf16");
    for (int k = 1; k < 256; k += 2) // between two values
        for (const double unit : {0x1p-27, 0x1p-26, 0x1p-25, 0x1p-24, 0x1p-23}) {
            const double tie = unit * (1 + k * 0x1p-8);
            CHECK(quantize(bf16, math::tanh(tie)) == unit * (1 + (k - 1) * 0x1p-8));
            CHECK(quantize(bf16, math::tanh(-tie)) == -unit * (1 + (k - 1) * 0x1p-8));
        }
    const auto rounded = [&](double x) { return quantize(bf16, x); };
    for (const double unit : {0x1p-40, 0x1p-60, 0x1p-120}) { // 1 + 2^-8 and 1 + 3 * 2^-8 lie between two values
        CHECK(rounded(math::tanh(unit * (1 + 3 * 0x1p-8))) == unit * (1 + 0x1p-7));
        CHECK(rounded(math::tanh(-unit * (1 + 3 * 0x1p-8))) == -unit * (1 + 0x1p-7));
        CHECK(rounded(math::expm1(unit * (1 + 0x1p-8))) == unit * (1 + 0x1p-7));
        CHECK(rounded(math::expm1(-unit * (1 + 3 * 0x1p-8))) == -unit * (1 + 0x1p-7));
    }
}

TEST_CASE("the ends") {
    constexpr double infinity = std::numeric_limits<double>::infinity();
    const double nan = std::numeric_limits<double>::quiet_NaN();
    CHECK(math::exp(-infinity) == 0);
    CHECK(math::exp(infinity) == infinity);
    CHECK(math::expm1(-infinity) == -1);
    CHECK(math::expm1(infinity) == infinity);
    CHECK(std::signbit(math::expm1(-0.0)));
    CHECK(math::log(0) == -infinity);
    CHECK(math::log(-0.0) == -infinity);
    CHECK(std::isnan(math::log(-1)));
    CHECK(math::log(infinity) == infinity);
    CHECK(math::tanh(infinity) == 1);
    CHECK(math::tanh(-infinity) == -1);
    CHECK(std::signbit(math::tanh(-0.0)));
    CHECK(math::sigmoid(-infinity) == 0);
    CHECK(math::sigmoid(infinity) == 1);
    for (const auto gelu : {math::gelu, math::gelu_tanh, math::silu}) { // infinity times zero, as in torch
        CHECK(std::isnan(gelu(-infinity)));
        CHECK(gelu(infinity) == infinity);
        CHECK(gelu(0x1p127) < 0x1p127);
        CHECK(std::signbit(gelu(-0.0)));
        CHECK(std::signbit(gelu(-0x1p127)));
        CHECK(gelu(-0x1p127) == 0);
    }
    for (const Function& f : functions) CHECK(std::isnan(f.ours(nan)));
}

// Conversions of all 2^32 floats to the six training formats, against the processor's double arithmetic: x is scaled
// exactly so that the format's last place is 1, rounded once by a correctly rounded nearbyint (or floor, ceil, trunc,
// round), and scaled back. Nearest-even takes every input, the other modes every 61st: an odd stride, so all patterns
// of low bits occur.
#include "cases.h"

#include <doctest/doctest.h>

#include <stdexcept>

using namespace amp;
using namespace amp::test;

namespace {

constexpr std::uint64_t floats = std::uint64_t{1} << 32;
constexpr const char* training_formats[] = {"fp32", "tf32", "fp16", "bf16", "e4m3", "e5m2"};

const std::vector<double> powers = [] {
    std::vector<double> p;
    for (int e = -1000; e <= 1000; ++e) p.push_back(std::ldexp(1.0, e));
    return p;
}();
double power(int e) { return powers[static_cast<std::size_t>(e + 1000)]; }

double to_integer(double x, Rounding rounding) {
    switch (rounding) {
    case Rounding::nearest_even: return std::nearbyint(x);
    case Rounding::nearest_away: return std::round(x);
    case Rounding::toward_zero: return std::trunc(x);
    case Rounding::down: return std::floor(x);
    case Rounding::up: return std::ceil(x);
    case Rounding::to_odd: {
        const double t = std::trunc(x);
        return t == x || std::fmod(t, 2.0) != 0 ? t : t + std::copysign(1.0, x);
    }
    case Rounding::stochastic: break; // has sweeps of its own
    }
    throw std::invalid_argument("[to_integer] expected a rounding without random bits");
}

/// The value of x in the format; NaN is 0x7fc00000.
float by_double(const Facts& f, float x, Rounding rounding) {
    constexpr float nan = std::bit_cast<float>(0x7fc00000);
    const float infinity = f.infinity == 0 ? nan : std::copysign(std::numeric_limits<float>::infinity(), x);
    if (std::isnan(x)) return nan;
    if (std::isinf(x)) return infinity;
    const auto exponent = static_cast<int>(std::bit_cast<std::uint64_t>(double{x}) >> 52 & 0x7ff) - 1023;
    const int last_place = std::max(exponent, 1 - f.bias) - f.fraction_bits;
    const double r = to_integer(double{x} * power(-last_place), rounding) * power(last_place);
    if (std::fabs(r) <= f.max) return static_cast<float>(r);
    return oracle::overflows_outwards(f, rounding, x < 0) ? infinity : static_cast<float>(std::copysign(f.max, x));
}

void prove_encode(const Facts& facts, Rounding rounding, std::string_view mode, Shard part) {
    const FormatSpec f = format(facts.name);
    std::vector<float> values;
    for (std::uint32_t code = 0; facts.bits() < 32 && code < std::uint32_t{1} << facts.bits(); ++code)
        values.push_back(oracle::to_float(facts, code));
    prove(
        fmt::format("float to {} {} against double arithmetic", facts.name, mode), floats,
        [&](std::uint64_t i, Tally& tally) {
            const auto x = std::bit_cast<float>(static_cast<std::uint32_t>(i));
            const std::uint32_t code = encode(f, x, {.rounding = rounding});
            const float value = values.empty() ? std::bit_cast<float>(code) : values[code];
            tally.expect(value, by_double(facts, x, rounding), [&] { return Tally::show(x); });
        },
        part);
}

} // namespace

TEST_CASE("all floats, nearest even") {
    for (const char* name : training_formats)
        prove_encode(oracle::find(name), Rounding::nearest_even, "nearest_even", shard());
}

TEST_CASE("every 61st float, the other modes") {
    const Shard part{shard().first, shard().count * 61};
    for (const char* name : training_formats)
        for (const auto& [rounding, mode] : {std::pair{Rounding::nearest_away, "nearest_away"},
                                             {Rounding::toward_zero, "toward_zero"},
                                             {Rounding::down, "down"},
                                             {Rounding::up, "up"},
                                             {Rounding::to_odd, "to_odd"}})
            prove_encode(oracle::find(name), rounding, mode, part);
}

TEST_CASE("decode, all codes of fp32") {
    const FormatSpec f = format("fp32");
    prove(
        "fp32 decode", floats,
        [&](std::uint64_t i, Tally& tally) {
            const auto x = std::bit_cast<float>(static_cast<std::uint32_t>(i));
            tally.expect(decode(f, static_cast<std::uint32_t>(i)), std::isnan(x) ? std::bit_cast<float>(0x7fc00000) : x,
                         [&] { return Tally::show(x); });
        },
        shard());
}

// The inputs of the proofs of formats/: every policy, and operands that reach every class and boundary of a format.
#pragma once

#include "oracle.h"
#include "oracle_arithmetic.h"
#include "sweep.h"

#include <ampscope/formats/arithmetic.h>

#include <cmath>
#include <limits>
#include <tuple>
#include <vector>

namespace amp::test {

using oracle::Context, oracle::Facts;

/// All of them, in the order of the enum.
inline constexpr auto roundings = [] {
    std::array<Rounding, rounding_names.size()> all{};
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<Rounding>(i);
    return all;
}();
inline constexpr std::uint64_t policy_count = roundings.size() * 6 * 4 * 2 * 6 * 5;

/// The i-th combination of rounding (fastest), overflow, subnormals, tininess, random bits and variant, and NaN rule.
inline Policy policy_at(std::uint64_t i) {
    const auto digit = [&i](std::uint64_t base) {
        const std::uint64_t d = i % base;
        i /= base;
        return static_cast<std::uint8_t>(d);
    };
    Policy p;
    p.rounding = roundings[digit(roundings.size())];
    p.overflow = Overflow{digit(6)};
    p.subnormals = Subnormals{digit(4)};
    p.tininess = Tininess{digit(2)};
    constexpr std::pair<std::uint8_t, StochasticVariant> random[] = {
        {32, StochasticVariant::a}, {16, StochasticVariant::a}, {8, StochasticVariant::a},
        {1, StochasticVariant::b},  {8, StochasticVariant::b},  {11, StochasticVariant::c}};
    std::tie(p.random_bits, p.variant) = random[digit(6)];
    p.nan = NanRule{digit(5)};
    return p;
}

/// Whether a policy differs from all before it: random bits matter to stochastic rounding only.
inline bool is_first_of_its_kind(const Policy& p) {
    return p.rounding == Rounding::stochastic || (p.random_bits == 32 && p.variant == StochasticVariant::a);
}

inline std::string describe(const Policy& p, std::uint32_t random) {
    return fmt::format("rounding {} overflow {} subnormals {} tininess {} nan {} random {:#x}/{}{}", int(p.rounding),
                       int(p.overflow), int(p.subnormals), int(p.tininess), int(p.nan), random, p.random_bits,
                       name_of(p.variant));
}

/// Scrambles 64 bits in a fixed way (the finaliser of splitmix64): the tests' source of random inputs.
inline std::uint64_t mix(std::uint64_t x) {
    x += 0x9e3779b97f4a7c15;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
}

/// A random word: 0, the largest, the middle or its neighbours for 16 and 32 bits; or any word.
inline std::uint32_t random_word(std::uint64_t i) {
    constexpr std::uint32_t ends[] = {0, 1, 0x7fff, 0x8000, 0xffff, 0x7fffffff, 0x80000000, 0xffffffff};
    const std::uint64_t h = mix(i);
    return h % 2 == 0 ? ends[h / 2 % 8] : static_cast<std::uint32_t>(h >> 32);
}

/// Indices of magnitudes that matter. In small formats all of them; in others both ends, the middle and some others of
/// every binade. Also a few beyond the largest finite value, as if the exponent were unbounded.
inline std::vector<std::uint64_t> telling_indices(const Facts& f) {
    const std::uint64_t end = oracle::max_index(f) + 4;
    const std::uint64_t fractions = std::uint64_t{1} << f.fraction_bits;
    std::vector<std::uint64_t> result;
    if (f.bits() <= 8) {
        for (std::uint64_t k = 0; k < end; ++k) result.push_back(k);
        return result;
    }
    for (std::uint64_t base = 0; base < end; base += fractions)
        for (const std::uint64_t m : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{2}, fractions / 2 - 1,
                                      fractions / 2, mix(base) % fractions, fractions - 2, fractions - 1})
            if (m < fractions && base + m < end) result.push_back(base + m);
    for (std::uint64_t k = end - 6; k < end; ++k) result.push_back(k);
    return result;
}

/// These magnitudes, the midpoints to their successors, and the neighbours of both at float and at double resolution,
/// each with both signs; the extremes of float and double; infinities. No NaN.
inline std::vector<double> telling_values(const Facts& f, const std::vector<std::uint64_t>& indices) {
    std::vector<double> result;
    const auto push = [&](double v) {
        result.push_back(v);
        result.push_back(-v);
    };
    constexpr float inf_f = std::numeric_limits<float>::infinity();
    constexpr double inf = std::numeric_limits<double>::infinity();
    for (const std::uint64_t k : indices) {
        const oracle::Dyadic d = oracle::magnitude(f, k);
        for (const double v : {std::ldexp(double(d.n), d.exponent), std::ldexp(double(2 * d.n + 1), d.exponent - 1)}) {
            push(v);
            push(std::nextafter(v, inf));
            if (v > 0) push(std::nextafter(v, 0.0));
            const auto nearest = static_cast<float>(v);
            if (std::isinf(nearest)) continue;
            push(static_cast<double>(std::nextafter(nearest, inf_f)));
            if (nearest > 0) push(static_cast<double>(std::nextafter(nearest, 0.0f)));
        }
    }
    for (const double v : {0x1p-149, 0x1p-150, 0x1p-1074, 0x1p-1022, 0x1.fffffep127, 0x1.fffffefp127, 0x1.ffffffp127,
                           std::numeric_limits<double>::max(), inf, 1.0, 1e-5, 3.14159})
        push(v);
    return result;
}

/// Quiet and signalling NaNs of both signs as bits of a float (in a double: the upper half of the bits).
inline constexpr std::uint32_t nan_bits[] = {0x7fc00000, 0xffc00000, 0x7fffffff, 0xffffffff, 0x7f800001,
                                             0xff800001, 0x7fa55aa5, 0xffd33c3c, 0x7f801000, 0xffbfffff};

inline std::uint32_t code_of(std::uint64_t bits, const FormatSpec& f) {
    return static_cast<std::uint32_t>(bits) & f.code_mask();
}

/// Operands whose exact result lies near a boundary: c close to -a * b or to half an ulp of it, equal exponents,
/// subnormals, the ends of the format; otherwise random bits.
inline std::array<std::uint32_t, 3> hard_operands(const FormatSpec& f, std::uint64_t seed) {
    const std::uint64_t h = mix(seed), g = mix(h);
    std::uint32_t a = code_of(h, f), b = code_of(h >> 32, f), c = code_of(g, f);
    switch (g >> 60) {
    case 0:
    case 1:
    case 2:
    case 3: break;
    case 4:
    case 5:
        a = (a & ~f.fraction_mask()) | (1u << (g >> 32) % static_cast<unsigned>(f.precision())) >> 1;
        [[fallthrough]];
    case 6:
    case 7:
    case 8: { // c = -(a * b), changed by a few ulps or shifted down by about the precision: for cancellation and ties
        Arithmetic exact{f};
        c = exact.mul(a, b) ^ f.sign_mask();
        if ((g >> 59 & 1) != 0)
            c = code_of(
                c - (static_cast<std::uint32_t>(g >> 40) % static_cast<unsigned>(f.precision() + 2) << f.fraction_bits),
                f);
        c = code_of(c + static_cast<std::uint32_t>(g >> 48) % 5 - 2, f);
        break;
    }
    case 9:
    case 10: b = code_of((a & ~f.fraction_mask()) | (b & f.fraction_mask()), f); break; // equal exponents
    case 11: b = code_of(a + static_cast<std::uint32_t>(g >> 32) % 7 - 3, f); break;
    case 12: a &= f.fraction_mask() | f.sign_mask(); break; // subnormal
    case 13: c &= f.fraction_mask() | f.sign_mask(); break;
    case 14: a = f.max_code() - static_cast<std::uint32_t>(g >> 32) % 3; break;
    default: b = f.min_normal_code() + static_cast<std::uint32_t>(g >> 32) % 3 - 1; break;
    }
    return {a, b, c};
}

/// The operation of formats/arithmetic.h that the oracle calls `op`.
inline oracle::Outcome run(Arithmetic& arithmetic, oracle::Op op, std::uint32_t a, std::uint32_t b, std::uint32_t c) {
    arithmetic.flags = {};
    const std::uint32_t code = [&] {
        switch (op) {
            using enum oracle::Op;
        case add: return arithmetic.add(a, b);
        case sub: return arithmetic.sub(a, b);
        case mul: return arithmetic.mul(a, b);
        case div: return arithmetic.div(a, b);
        case remainder: return arithmetic.remainder(a, b);
        case sqrt: return arithmetic.sqrt(a);
        case fma: return arithmetic.fma(a, b, c);
        case round: return arithmetic.round_to_integral(a);
        case round_exact: return arithmetic.round_to_integral(a, true);
        case min: return arithmetic.min(a, b);
        case max: return arithmetic.max(a, b);
        case min_number: return arithmetic.min_number(a, b);
        case max_number: break;
        }
        return arithmetic.max_number(a, b);
    }();
    return {code, arithmetic.flags.bits};
}

/// Checks one operation under one policy against the oracle.
inline void check(const FormatSpec& format, const Facts& facts, const Policy& policy, std::uint32_t random,
                  oracle::Op op, std::uint32_t a, std::uint32_t b, std::uint32_t c, Tally& tally) {
    Arithmetic arithmetic{format, policy, random};
    tally.expect(run(arithmetic, op, a, b, c), oracle::apply({facts, policy, random}, op, a, b, c), [&] {
        return fmt::format("{} {} {:#x} {:#x} {:#x} {}", facts.name, oracle::op_names[int(op)], a, b, c,
                           describe(policy, random));
    });
}

} // namespace amp::test

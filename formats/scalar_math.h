// Elementary functions that give the same bits everywhere: double arithmetic in a fixed order, no libm, no tables.
//
// Each takes a double and returns one whose relative error is below 2^-48 (tests/sweep_scalar_math: all FP32 operands).
// A result in FP32 or a smaller format is that double rounded once. It is the value nearest to the exact result, but
// for the few FP32 operands whose exact result lies within that error of a tie. Needs rounding to nearest
// (FloatEnvironment). Methods: J.-M. Muller, "Elementary Functions", 3rd edition, 2016, chapters 4 (series) and 11
// (argument reduction after Cody and Waite).
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <utility>

namespace amp::math {

namespace detail {

// ln 2 in two parts: the first has 32 bits, so that its product with an exponent is exact.
inline constexpr double ln2_high = 0x1.62e42feep-1, ln2_low = 0x1.a39ef35793c76p-33, log2_e = 0x1.71547652b82fep+0;

inline constexpr double ln2 = 0x1.62e42fefa39efp-1;

/// sum of c[i] x^i, by Horner's rule. Unrolled: an inner loop would keep compilers from vectorising the loop around it.
template <int n>
constexpr double polynomial(double x, const double (&c)[n]) {
    return [&]<int... i>(std::integer_sequence<int, i...>) {
        double sum = c[n - 1];
        ((sum = sum * x + c[n - 2 - i]), ...);
        return sum;
    }
    (std::make_integer_sequence<int, n - 1>());
}

/// x = k ln 2 + r with |r| <= ln 2 / 2, and (e^r - 1) / r by its series: the first term left out is below 2^-57.
struct Reduced {
    double r, quotient;
    std::int64_t k;
};

/// (e^r - 1) / r for |r| <= ln 2 / 2.
constexpr double quotient(double r) {
    constexpr double inverse_factorials[] = {
        1.0,         1.0 / 2,      1.0 / 6,       1.0 / 24,       1.0 / 120,       1.0 / 720,       1.0 / 5040,
        1.0 / 40320, 1.0 / 362880, 1.0 / 3628800, 1.0 / 39916800, 1.0 / 479001600, 1.0 / 6227020800};
    return polynomial(r, inverse_factorials);
}

/// x rounded to an integer, as a double and as an integer, for |x| below 2^51.
struct Whole {
    double number;
    std::int64_t integer;
};
constexpr Whole whole(double x) {
    constexpr double shifter = 0x1.8p52; // x + shifter is x rounded to an integer, held in the last bits
    const double shifted = x + shifter;
    const auto integer = static_cast<std::int64_t>(std::bit_cast<std::uint64_t>(shifted) << 12) >> 12;
    return {shifted - shifter, integer - (std::int64_t{1} << 51)};
}

/// For |x| <= 1075.
constexpr Reduced reduce_exp(double x) {
    const Whole k = whole(x * log2_e);
    const double r = (x - k.number * ln2_high) - k.number * ln2_low;
    return {r, quotient(r), k.integer};
}

/// 2^k for -1022 <= k <= 1023.
constexpr double power_of_two(std::int64_t k) {
    return std::bit_cast<double>(static_cast<std::uint64_t>(k + 1023) << 52);
}

/// e^x for -708 <= x <= 709.
constexpr double exp_of(double x) {
    const Reduced a = reduce_exp(x);
    return (1 + a.r * a.quotient) * power_of_two(a.k);
}

/// e^x - 1 for -60 <= x <= 709; the relative error near zero is expm1's business.
constexpr double expm1_of(double x) {
    const Reduced a = reduce_exp(x);
    const double power = power_of_two(a.k), part = a.r * a.quotient, whole = power * part + (power - 1);
    return a.k == 0 ? part : whole;
}

constexpr double clamp(double x, double low, double high) { return x < low ? low : x > high ? high : x; }

/// x moved by one unit in the last place, away from zero or toward it; x is finite and not zero.
constexpr double nudged(double x, bool away) {
    const auto bits = std::bit_cast<std::uint64_t>(x);
    return std::bit_cast<double>(away ? bits + 1 : bits - 1);
}

inline constexpr double nan = std::numeric_limits<double>::quiet_NaN();
inline constexpr double infinity = std::numeric_limits<double>::infinity();

} // namespace detail

/// e^x. Zero below -708 (rounded to FP32 it is zero from -104 down), infinity above 709.
constexpr double exp(double x) {
    const double result = detail::exp_of(detail::clamp(x, -708, 709));
    return x != x ? detail::nan : x < -708 ? 0 : x > 709 ? detail::infinity : result;
}

/// 2^x. Zero below -1022 (rounded to FP32 it is zero from -150 down), infinity above 1023.
constexpr double exp2(double x) {
    const double inside = detail::clamp(x, -1022, 1023);
    const detail::Whole k = detail::whole(inside);
    const double r = (inside - k.number) * detail::ln2;
    const double result = (1 + r * detail::quotient(r)) * detail::power_of_two(k.integer);
    return x != x ? detail::nan : x < -1022 ? 0 : x > 1023 ? detail::infinity : result;
}

/// e^x - 1 with a small relative error near zero, too; keeps the sign of zero. Infinity above 709. Where the exact
/// result differs from x by less than a last place, the function returns the neighbour of x on that side: x itself may
/// be a tie in the format that the result is rounded to.
constexpr double expm1(double x) {
    const double beside = x == 0 ? x : detail::nudged(x, x > 0);
    const double result = -0x1p-52 < x && x < 0x1p-52 ? beside : detail::expm1_of(detail::clamp(x, -60, 709));
    return x > 709 ? detail::infinity : x != x ? detail::nan : result;
}

/// The natural logarithm of a normal double; all positive floats are normal doubles. log(0) = -infinity, NaN below 0.
constexpr double log(double x) {
    // x = 2^k m with m between sqrt(1/2) and sqrt(2); log m = 2 artanh s, s = (m - 1) / (m + 1), by its series: the
    // first term left out is below 2^-58 of the sum.
    constexpr double reciprocals[] = {1.0 / 3,  1.0 / 5,  1.0 / 7,  1.0 / 9,  1.0 / 11, 1.0 / 13,
                                      1.0 / 15, 1.0 / 17, 1.0 / 19, 1.0 / 21, 1.0 / 23};
    constexpr std::uint64_t sqrt_half = 0x3fe6a09e667f3bcd;
    const auto bits = std::bit_cast<std::uint64_t>(x > 0 && x < detail::infinity ? x : 1.0);
    const std::int64_t k = static_cast<std::int64_t>(bits - sqrt_half) >> 52;
    const double m = std::bit_cast<double>(bits - (static_cast<std::uint64_t>(k) << 52));
    const double s = (m - 1) / (m + 1), z = s * s, exponent = static_cast<double>(k);
    const double tail = 2 * s * (z * detail::polynomial(z, reciprocals));
    const double result = exponent * detail::ln2_high + (2 * s + (tail + exponent * detail::ln2_low));
    return x > 0 ? (x < detail::infinity ? result : x) : x == 0 ? -detail::infinity : detail::nan;
}

/// The hyperbolic tangent; keeps the sign of zero. Near zero the result lies on the exact one's side of x, as in expm1.
constexpr double tanh(double x) {
    const double e = detail::expm1_of(2 * detail::clamp(x < 0 ? -x : x, 0, 30)); // from 20 on the result is 1
    const double magnitude = e / (e + 2), far = x < 0 ? -magnitude : magnitude;
    const double beside = x == 0 ? x : detail::nudged(x, false);
    // In this range the value is nearer to zero by x^2 / 3 (relative), which is below 2^-49; beyond it, x^2 / 3 exceeds
    // the errors of `far`.
    const double result = -0x1p-24 < x && x < 0x1p-24 ? beside : far;
    return x != x ? detail::nan : result;
}

/// 1 / (1 + e^-x).
constexpr double sigmoid(double x) { return 1 / (1 + exp(-x)); }

} // namespace amp::math

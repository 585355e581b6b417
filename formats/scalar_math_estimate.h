// GELU, SiLU, their derivatives and e^x for loops over many elements: quick values that are good enough to tell how the
// exact ones round.
//
// An estimate is never a result. Where decides_rounding() says that no boundary of a format lies near it, it may stand
// for the function of the same name in scalar_math_gelu.h or scalar_math_silu.h: both round alike, and so does the
// exact value. Elsewhere, about once in two thousand operands, the caller takes that function itself. Results therefore
// do not depend on whether there are estimates, and estimates may use fused multiply-adds, fewer terms and other forms.
// Operands of GELU and SiLU are FP32 values held in a double, of e^x (scalar_math.h), a factor of results, any doubles.
// Errors where a rounding is decided: below 2^-38, of e^x 2^-44 (tests/sweep_scalar_math: all FP32 operands, against
// those functions). Coefficients: tests/data/mpmath/gelu.py.
#pragma once

#include <ampscope/formats/scalar_math_silu.h>

#include <type_traits>

namespace amp::math::estimate {

namespace detail {

using math::detail::nan;

/// a b + c. One rounding where loops are compiled; clang 14 has no such function for constants.
[[gnu::always_inline]] constexpr double fma(double a, double b, double c) {
    return std::is_constant_evaluated() ? a * b + c : __builtin_fma(a, b, c);
}

/// sum of c[i] x^i, as math::detail::polynomial, with one rounding a term.
template <int n>
[[gnu::always_inline]] constexpr double polynomial(double x, const double (&c)[n]) {
    double sum = c[n - 1];
#pragma GCC unroll 16
    for (int i = n - 2; i >= 0; --i) sum = fma(sum, x, c[i]);
    return sum;
}

/// e^x for |x| <= 700; beyond it any number.
[[gnu::always_inline]] constexpr double exp(double x) {
    using math::detail::ln2_high, math::detail::ln2_low, math::detail::log2_e;
    constexpr double shifter = 0x1.8p52; // x + shifter is x rounded to an integer, held in the last bits
    constexpr double c[] = {0x1.000000000003dp+0,  0x1.0000000000006p+0, 0x1.ffffffffe74f1p-2,  0x1.5555555550d88p-3,
                            0x1.55555588b8403p-5,  0x1.11111123bf154p-7, 0x1.6c162bb7d965cp-10, 0x1.a01994c849582p-13,
                            0x1.a17df0d914d6cp-16, 0x1.72e107c874de9p-19};
    const double shifted = fma(x, log2_e, shifter), k = shifted - shifter;
    const double r = fma(-k, ln2_low, fma(-k, ln2_high, x));
    return polynomial(r, c) * std::bit_cast<double>((std::bit_cast<std::uint64_t>(shifted) + 1023) << 52);
}

/// Phi(-t) and t phi(t) - Phi(-t), without their factor e^(-t^2 / 2), for 0 <= t <= 8, where r = 1 / (t + 4). The first
/// is smooth in (t - 4) / (t + 4) after multiplication by t + 4, the second after division by t - t0, its zero.
[[gnu::always_inline]] constexpr double mills(double t, double r) {
    constexpr double c[] = {0x1.82b4bb8c9402ep-1,   -0x1.373e3a895b834p-1,  0x1.8c6dbf2f1bb54p-2,
                            -0x1.7dff2bd74526cp-3,  0x1.eec4c98a44fbbp-5,   -0x1.ee27e89f98fdcp-8,
                            -0x1.c815358ef658ep-9,  0x1.ab9cb34f4dc94p-10,  0x1.17964fdf82012p-13,
                            -0x1.e926ee84802b1p-13, -0x1.1f985ba7b236ap-18, 0x1.40f2e2d90b79ep-15,
                            0x1.2e45dbce23910p-17};
    return r * polynomial((t - 4) * r, c);
}
[[gnu::always_inline]] constexpr double mills_slope(double t, double r) {
    constexpr double zero = 0x1.80ead197f00b4p-1, zero_low = -0x1.13e74c58cada8p-56;
    constexpr double c[] = {-0x1.d94de7842594ap-2, 0x1.a763001a95c0ep-4,   -0x1.ef4ff7ff43043p-5,
                            0x1.cc1e266a8c24ep-6,  -0x1.37754de48fe05p-7,  0x1.d4c7af630f19dp-10,
                            0x1.443aa2ebdfdc6p-13, -0x1.857b174ad5edcp-13, 0x1.2818003bbdb76p-16,
                            0x1.2ea0e51ee46e5p-16, -0x1.1a99f72e31e83p-18, -0x1.d316d665013ccp-19,
                            -0x1.29763a34f261ep-21};
    return ((t - zero) - zero_low) * polynomial((t - 4) * r, c);
}

/// side(-|x|) of a function for which side(x) + side(-x) = 1, whose left side is e^(-t^2 / 2) factor(t, 1 / (t + 4)).
template <class Factor>
[[gnu::always_inline]] constexpr double with_tail(double x, const Factor& factor) {
    const double t = __builtin_fabs(x), tail = exp(-0.5 * (t * t)) * factor(t, 1 / (t + 4));
    return t <= 8 ? (x < 0 ? tail : 1 - tail) : nan;
}

/// x / (1 + e^-v) for |x| <= 16, and its derivative, where v is a function of x and bend is x v'.
[[gnu::always_inline]] constexpr double logistic(double x, double v) {
    return __builtin_fabs(x) <= 16 ? x / (1 + exp(-v)) : nan;
}
[[gnu::always_inline]] constexpr double logistic_derivative(double x, double v, double bend) {
    const double power = exp(-v), s = 1 / (1 + power), factor = 1 + bend * (power * s);
    const double far = __builtin_fabs(x) <= 16 ? __builtin_fabs(factor) : 0; // near its zero, errors are too large
    return far > 0x1p-10 ? s * factor : nan;
}

} // namespace detail

[[gnu::always_inline]] constexpr double gelu(double x) { return x * detail::with_tail(x, detail::mills); }

[[gnu::always_inline]] constexpr double gelu_derivative(double x) { return detail::with_tail(x, detail::mills_slope); }

[[gnu::always_inline]] constexpr double gelu_tanh(double x) {
    return detail::logistic(x, math::detail::tanh_form_exponent(x));
}

[[gnu::always_inline]] constexpr double gelu_tanh_derivative(double x) {
    return detail::logistic_derivative(x, math::detail::tanh_form_exponent(x), x * math::detail::tanh_form_slope(x));
}

[[gnu::always_inline]] constexpr double silu(double x) { return detail::logistic(x, x); }

[[gnu::always_inline]] constexpr double silu_derivative(double x) { return detail::logistic_derivative(x, x, x); }

/// e^x for -700 <= x <= 700, with an error below 2^-44; else NaN.
[[gnu::always_inline]] constexpr double exp(double x) {
    return __builtin_fabs(x) <= 700 ? detail::exp(x) : detail::nan;
}

/// Whether no number of 25 bits lies within 2^-precision of y (relative). Formats of up to 24 bits change from one
/// value to the next only at such numbers, in every rounding mode but stochastic ones. False for zero, infinities and
/// NaN.
[[gnu::always_inline]] constexpr bool decides_rounding(double y, int precision = 37) {
    constexpr std::uint64_t below = (1U << 28) - 1; // of the 52 bits after the first, 24 remain
    const std::uint64_t margin = std::uint64_t{1} << (53 - precision);
    return ((std::bit_cast<std::uint64_t>(y) + margin) & below) >= 2 * margin;
}

} // namespace amp::math::estimate

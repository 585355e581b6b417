// GELU and its derivative, x Phi(x) and the tanh form, with the same bits everywhere (see formats/scalar_math.h).
//
// Operands are FP32 values held in a double, so their squares are exact. Relative errors (tests/sweep_scalar_math: all
// FP32 operands): below 2^-48 for the form with Phi, below 2^-42 for the form with tanh, whose exponent is rounded and
// reaches 700. Coefficients: tests/data/mpmath/gelu.py.
#pragma once

#include <ampscope/formats/scalar_math.h>

namespace amp::math {

namespace detail {

inline constexpr double inverse_sqrt_2pi = 0x1.9884533d43651p-2;

/// Phi(-t) = e^(-t^2 / 2) mills(t) for 0 <= t <= 40. The form of M. M. Shepherd and J. G. Laframboise, "Chebyshev
/// Approximation of (1 + 2x) exp(x^2) erfc x in 0 <= x < inf", Math. Comp. 36, 1981: (1 + t) mills(t) is smooth in
/// (t - 5) / (t + 5).
[[gnu::always_inline]] constexpr double mills(double t) {
    constexpr double c[] = {
        0x1.d8979b0f2b39dp-2,   -0x1.76ff86859eb14p-4, 0x1.fc66cc64a1460p-6,   0x1.47c1d03054939p-7,
        -0x1.b08e0007b6b21p-6,  0x1.92037bab4699bp-6,  -0x1.f11aab02b0bf5p-7,  0x1.ab6d038d761e2p-8,
        -0x1.b75f4fa261497p-10, 0x1.05719ebf6330cp-17, 0x1.7e61e860a59bep-13,  -0x1.c1b1c2050c687p-15,
        -0x1.4c0fd4b6ec479p-17, 0x1.30035605eb0f4p-17, -0x1.2c47faa601372p-24, -0x1.5f2f9f18a289ep-20,
        0x1.10940d6569ce2p-23,  0x1.a7409726c64dbp-23, -0x1.ae4b5e235e613p-26, -0x1.0cb349ac9e9b7p-25,
        0x1.77ec130b5aed1p-29,  0x1.2806fa80b5652p-28, -0x1.45587cea66577p-37, -0x1.3a07a002cae32p-32};
    return polynomial((t - 5) / (t + 5), c) / (1 + t);
}

/// (Phi(x) - 1/2) / x for |x| <= 1/2, by its series: the first term left out is below 2^-60.
constexpr double central_slope(double x) {
    constexpr double c[] = {
        1.0,          -1.0 / 6,       1.0 / 40,        -1.0 / 336,        1.0 / 3456,       -1.0 / 42240,
        1.0 / 599040, -1.0 / 9676800, 1.0 / 175472640, -1.0 / 3530096640, 1.0 / 78033715200};
    return inverse_sqrt_2pi * polynomial(x * x, c);
}

/// |x|, and e^(-x^2 / 2) while that is a normal double, else 0 (rounded to FP32 it is zero from |x| = 14 on).
struct Bell {
    double t, power;
};
[[gnu::always_inline]] constexpr Bell bell(double x) {
    constexpr double end = 37.5;
    const double t = clamp(x < 0 ? -x : x, 0, end), power = exp_of(-0.5 * (t * t));
    return {t, t < end ? power : 0};
}

/// The standard normal distribution Phi(x), with a small relative error in the left tail, too.
[[gnu::always_inline]] constexpr double normal_cdf(double x) {
    const auto [t, power] = bell(x);
    const double tail = power * mills(t), far = x < 0 ? tail : 1 - tail;
    const double near = 0.5 + x * central_slope(x);
    return t < 0.5 ? near : far;
}

/// f near its simple zero: f(zero + d) = d q(d), with the zero in two parts. Keeps the relative error small there.
template <int n>
constexpr double near_zero(double x, double zero, double zero_low, const double (&q)[n]) {
    const double d = (x - zero) - zero_low;
    return d * polynomial(d, q);
}

inline constexpr double zero_radius = 0.25;

constexpr bool is_near(double x, double zero) { return zero - zero_radius < x && x < zero + zero_radius; }

/// The exponent v = 2 sqrt(2 / pi) (x + 0.044715 x^3) of the tanh form x / (1 + e^-v), and its derivative.
constexpr double tanh_form_exponent(double x) { return x * (0x1.9884533d43651p+0 + 0x1.2444f2a4d8b4bp-4 * (x * x)); }
constexpr double tanh_form_slope(double x) { return 0x1.9884533d43651p+0 + 0x1.b6676bf7450f0p-3 * (x * x); }

/// x cdf, moved off a tie to the exact result's side: near zero cdf is 1/2 plus something of the sign of x, and for
/// large x it is a little below one. For x = -infinity the product is NaN, by definition.
[[gnu::always_inline]] constexpr double times_cdf(double x, double cdf) {
    const bool tiny = -0x1p-50 < x && x < 0x1p-50;
    const double result = tiny ? 0.5 * x : x * cdf;
    const bool ties = tiny ? x != 0 : result == x && x < infinity;
    return ties ? nudged(result, tiny && x > 0) : result; // choices instead of branches, so that loops are vectorised
}

} // namespace detail

/// x Phi(x) = x (1 + erf(x / sqrt 2)) / 2 (D. Hendrycks and K. Gimpel, "Gaussian Error Linear Units", 2016). NaN for
/// -infinity, as in torch.
[[gnu::always_inline]] constexpr double gelu(double x) {
    const double result = detail::times_cdf(x, detail::normal_cdf(x));
    return x >= -0x1p1023 ? result : detail::nan; // x is NaN or -infinity
}

/// The derivative of gelu: Phi(x) + x phi(x), where phi is the normal density.
[[gnu::always_inline]] constexpr double gelu_derivative(double x) {
    constexpr double zero = -0x1.80ead197f00b4p-1;
    constexpr double q[] = {0x1.b9d98fa5a3215p-2,   0x1.8d9a941de3ac5p-2,  -0x1.2a2ef9bb86622p-6,
                            -0x1.d2fa4c17c7e84p-4,  -0x1.e4088244ea8d1p-7, 0x1.3e346def41ff3p-6,
                            0x1.297b9d6521f94p-8,   -0x1.258a6d855091ep-9, -0x1.8680e7ccdeff9p-11,
                            0x1.86c8638180b9ep-13,  0x1.6955a6611422dp-14, -0x1.784a7e74fd459p-17,
                            -0x1.ffafff4e0e463p-18, 0x1.d058093e844d3p-22};
    const auto [t, power] = detail::bell(x);
    const double slope = detail::inverse_sqrt_2pi * t;
    const double tail = power * (detail::mills(t) - slope), far = x < 0 ? tail : 1 - tail;
    const double near = 0.5 + x * (detail::central_slope(x) + detail::inverse_sqrt_2pi * power);
    const double at_zero = detail::near_zero(x, zero, 0x1.13e74c58cada8p-56, q);
    const double result = detail::is_near(x, zero) ? at_zero : t < 0.5 ? near : far;
    return x != x ? detail::nan : result;
}

/// x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2. NaN for -infinity, as in torch.
[[gnu::always_inline]] constexpr double gelu_tanh(double x) {
    return x != x ? detail::nan : detail::times_cdf(x, sigmoid(detail::tanh_form_exponent(x)));
}

/// The derivative of gelu_tanh: s + x s (1 - s) v', where s = 1 / (1 + e^-v).
[[gnu::always_inline]] constexpr double gelu_tanh_derivative(double x) {
    constexpr double zero = -0x1.81429f9e97e4dp-1;
    constexpr double q[] = {0x1.b8bacd2c96b91p-2,   0x1.8cd1a2b2fff33p-2,  -0x1.029615edb095bp-6,
                            -0x1.d2b773464707ap-4,  -0x1.104a83eda2c52p-6, 0x1.427996dc18485p-6,
                            0x1.58c9ed44022a5p-8,   -0x1.3d8d63f205385p-9, -0x1.e63ee89082889p-11,
                            0x1.14bf545f63c69p-12,  0x1.047b9fb5bde25p-13, -0x1.2514d6b98f2cap-15,
                            -0x1.02e303a9b42d0p-16, 0x1.7eeec06b57c0dp-18};
    const double t = detail::clamp(x, -40, 40); // beyond it |v| exceeds 700
    const double v = detail::tanh_form_exponent(t), power = math::exp(v < 0 ? v : -v);
    const double larger = 1 / (1 + power), smaller = power * larger;
    const double bend = t * detail::tanh_form_slope(t);
    if (x != x) return detail::nan;
    if (detail::is_near(x, zero)) return detail::near_zero(x, zero, 0x1.4f523ed77dbdcp-55, q);
    return v < 0 ? smaller * (1 + bend * larger) : larger * (1 + bend * smaller);
}

} // namespace amp::math

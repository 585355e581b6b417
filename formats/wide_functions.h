// The functions of p3109_functions.h to the precision of Wide<n>, each with a bound of its error. Arguments near zero
// and far from it, where another way is needed, are the caller's business unless a function says otherwise.
#pragma once

#include <ampscope/formats/bits.h>
#include <ampscope/formats/wide.h>

namespace amp::detail {

/// A number other than zero, its significand's bit 63 set: significand 2^(exponent - 63).
struct Normalised {
    bool sign;
    int exponent;
    std::uint64_t significand;

    explicit constexpr Normalised(const Unpacked& x)
        : sign(x.sign), exponent(x.exponent + 63 - leading_zeros(x.significand)),
          significand(x.significand << leading_zeros(x.significand)) {}
};

/// The exact result lies within 2^error last places of `value`, times 2^scale, and has that sign.
template <int n>
struct Estimate {
    Wide<n> value;
    bool sign = false;
    int scale = 0;
    int error = 64; ///< more than all that the kernels' cuts cost, and room for errors that a small divisor enlarges
};

/// Whether the bound leaves no doubt about the first 63 bits of a result that is no number of 63 bits; gives them.
template <int n>
constexpr bool decide(const Estimate<n>& estimate, Unpacked& result) {
    if (estimate.error >= 32 * n) return false;
    Wide<n> bound;
    bound.words[n - 1 - estimate.error / 32] = std::uint32_t{1} << estimate.error % 32;
    if (estimate.value < bound) return false;
    const Wide<n> high = estimate.value + bound;
    const int last = high.leading() - 62, cut = last + Wide<n>::fraction_bits;
    if (cut <= 0) return false;
    const Wide<n> head = high >> cut;
    if (head != (estimate.value - bound) >> cut) return false;
    const std::uint64_t bits = std::uint64_t{head.words[n - 2]} << 32 | head.words[n - 1];
    result = {.kind = Kind::finite,
              .sign = estimate.sign,
              .exponent = last - 1 + estimate.scale,
              .significand = bits << 1 | 1};
    return true;
}

/// From 1 to below 2.
template <int n>
constexpr Wide<n> mantissa(const Normalised& x) {
    Wide<n> m;
    m.words[0] = static_cast<std::uint32_t>(x.significand >> 32);
    m.words[1] = static_cast<std::uint32_t>(x.significand);
    return m >> 31;
}

/// a 2^exponent, modulo 2^32.
template <int n>
constexpr Wide<n> scaled(const Wide<n>& a, int exponent) {
    return exponent >= 0 ? a << exponent : a >> -exponent;
}
template <int n>
constexpr Wide<n> magnitude(const Normalised& x) {
    return scaled(mantissa<n>(x), x.exponent);
}
/// 1 / |x| for |x| >= 1.
template <int n>
constexpr Wide<n> inverse(const Normalised& x) {
    return quotient(one<n>, mantissa<n>(x)) >> x.exponent;
}

/// m 2^k with m from 1 to a little above 2.
template <int n>
struct Power {
    Wide<n> m;
    int k;

    /// For k <= 0.
    [[nodiscard]] constexpr Wide<n> value() const { return m >> -k; }
};

/// e^x for |x| < 2^15.
template <int n>
constexpr Power<n> exp_power(const Normalised& x) {
    const Wide<n> y = magnitude<n>(x);
    std::uint32_t k = (y * log2_e<n>).words[0];
    if (!x.sign) return {exp_of(y - ln2<n> * k), static_cast<int>(k)};
    do ++k;
    while (ln2<n> * k < y); // once more where y log2 e was cut to the integer below
    return {exp_of(ln2<n> * k - y), -static_cast<int>(k)};
}

/// 2^x for |x| < 2^15 and x no integer.
template <int n>
constexpr Power<n> exp2_power(const Normalised& x) {
    Wide<n> fraction = magnitude<n>(x);
    const auto k = static_cast<int>(fraction.words[0]);
    fraction.words[0] = 0;
    if (!x.sign) return {exp_of(fraction * ln2<n>), k};
    return {exp_of((one<n> - fraction) * ln2<n>), -k - 1};
}

template <int n>
constexpr Estimate<n> estimate_exp_minus_one(const Normalised& x) {
    const Power<n> p = exp_power<n>(x);
    if (x.sign) return {one<n> - p.value(), true};
    return {p.m - (one<n> >> p.k), false, p.k};
}

template <int n>
constexpr Estimate<n> estimate_sinh_or_cosh(Normalised x, bool cosh) {
    const bool sign = x.sign && !cosh;
    x.sign = false;
    const Power<n> p = exp_power<n>(x);
    const Wide<n> other = quotient(one<n>, p.m) >> 2 * p.k; // e^-|x| 2^-k
    return {cosh ? p.m + other : p.m - other, sign, p.k - 1};
}

template <int n>
constexpr Estimate<n> estimate_tanh(Normalised x) {
    const bool sign = x.sign;
    x.sign = true;
    ++x.exponent;
    const Wide<n> q = exp_power<n>(x).value(); // e^(-2 |x|)
    return {quotient(one<n> - q, one<n> + q), sign};
}

/// ln(1 + e^x).
template <int n>
constexpr Estimate<n> estimate_softplus(Normalised x) {
    const bool negative = x.sign;
    x.sign = true;
    const Power<n> p = exp_power<n>(x);
    const Wide<n> y = p.value();
    if (!negative) return {magnitude<n>(x) + log_of(one<n> + y)};
    if (p.k > -64) return {log_of(one<n> + y)};
    Wide<n> sum; // y (1 - y / 2 + y^2 / 3 ...), the first factor apart: it may be far below a last place
    for (int i = Wide<n>::fraction_bits / 63; i >= 0; --i) sum = one<n> / static_cast<std::uint32_t>(i + 1) - y * sum;
    return {p.m * sum, false, p.k};
}

/// ln |x|.
template <int n>
constexpr Estimate<n> estimate_log(const Normalised& x) {
    const Wide<n> part = log_of(mantissa<n>(x));
    if (x.exponent >= 0) return {ln2<n> * static_cast<std::uint32_t>(x.exponent) + part};
    return {ln2<n> * static_cast<std::uint32_t>(-x.exponent) - part, true};
}

template <int n>
constexpr Estimate<n> estimate_log2(const Normalised& x) {
    const Wide<n> part = log_of(mantissa<n>(x)) * log2_e<n>;
    if (x.exponent >= 0) return {Wide<n>::integer(static_cast<std::uint32_t>(x.exponent)) + part};
    return {Wide<n>::integer(static_cast<std::uint32_t>(-x.exponent)) - part, true};
}

/// |ln x| of a number between 0 and 2^31, not 0.
template <int n>
constexpr Wide<n> log_magnitude(const Wide<n>& x) {
    const int k = x.leading();
    const Wide<n> part = log_of(scaled(x, -k));
    return k >= 0 ? ln2<n> * static_cast<std::uint32_t>(k) + part : ln2<n> * static_cast<std::uint32_t>(-k) - part;
}

/// ln(1 + x) for x > -1.
template <int n>
constexpr Estimate<n> estimate_log_one_plus(const Normalised& x) {
    if (x.sign) return {log_magnitude(one<n> - magnitude<n>(x)), true};
    if (x.exponent < 0) return {log_of(one<n> + magnitude<n>(x))};
    return {estimate_log<n>(x).value + log_of(one<n> + inverse<n>(x))};
}

template <int n>
constexpr Estimate<n> estimate_arc_sinh(const Normalised& x) {
    if (x.exponent < 0) {
        const Wide<n> y = magnitude<n>(x);
        return {log_magnitude(y + square_root(one<n> + y * y)), x.sign};
    }
    const Wide<n> i = inverse<n>(x); // ln |x| + ln(1 + sqrt(1 + 1 / x^2))
    return {estimate_log<n>(x).value + log_magnitude(one<n> + square_root(one<n> + i * i)), x.sign};
}

/// For x > 1.
template <int n>
constexpr Estimate<n> estimate_arc_cosh(const Normalised& x) {
    const Wide<n> i = inverse<n>(x);
    return {estimate_log<n>(x).value + log_of(one<n> + square_root(one<n> - i * i))};
}

/// For |x| < 1.
template <int n>
constexpr Estimate<n> estimate_arc_tanh(const Normalised& x) {
    const Wide<n> y = magnitude<n>(x);
    return {(log_of(one<n> + y) + log_magnitude(one<n> - y)) >> 1, x.sign};
}

/// An angle in quarter turns, modulo 2^32.
template <int n>
struct Turn {
    Wide<n> quarters;
    int error = 64;
};
template <int n>
constexpr Turn<n> turn_of_radians(const Normalised& x) {
    const int error = x.exponent + 24;
    return {scaled((inverse_pi<n> << 1) * mantissa<n>(x), x.exponent), error > 64 ? error : 64};
}
/// The angle pi |x|.
template <int n>
constexpr Turn<n> turn_of_pi(const Normalised& x) {
    return {scaled(mantissa<n>(x), x.exponent + 1)};
}

template <int n>
constexpr Estimate<n> estimate_sin(Turn<n> turn, bool sign = false) {
    const std::uint32_t quadrant = turn.quarters.words[0];
    turn.quarters.words[0] = 0;
    const Wide<n> f = quadrant % 2 != 0 ? one<n> - turn.quarters : turn.quarters;
    return {sin_of((pi<n> >> 1) * f), (quadrant % 4 >= 2) != sign, 0, turn.error};
}
template <int n>
constexpr Estimate<n> estimate_cos(Turn<n> turn) {
    ++turn.quarters.words[0];
    return estimate_sin(turn);
}
template <int n>
constexpr Estimate<n> estimate_tan(const Turn<n>& turn, bool sign) {
    const Estimate<n> s = estimate_sin(turn, sign), c = estimate_cos(turn);
    const int k = -c.value.leading();
    return {quotient(s.value, c.value << k), s.sign != c.sign, k, turn.error + k + 2};
}

/// For |x| <= 1.
template <int n>
constexpr Estimate<n> estimate_arc_sin(const Normalised& x) {
    const Wide<n> y = magnitude<n>(x);
    return {angle(y, square_root((one<n> - y) * (one<n> + y))), x.sign};
}
template <int n>
constexpr Estimate<n> estimate_arc_cos(const Normalised& x) {
    const Wide<n> y = magnitude<n>(x), a = angle(square_root((one<n> - y) * (one<n> + y)), y);
    return {x.sign ? pi<n> - a : a};
}

/// The angle of the point (x, y), whose sign is y's.
template <int n>
constexpr Estimate<n> estimate_arc_tan2(const Normalised& y, const Normalised& x) {
    const int d = y.exponent - x.exponent;
    const Wide<n> a = angle(mantissa<n>(y) >> (d < 0 ? -d : 0), mantissa<n>(x) >> (d > 0 ? d : 0));
    return {x.sign ? pi<n> - a : a, y.sign};
}

/// c x for a function that differs from it, relatively, by less than 2^8 x^2, where that is below 2^-190.
template <int n>
constexpr Estimate<n> estimate_linear(const Wide<n>& c, const Normalised& x) {
    const int error = Wide<n>::fraction_bits + 2 * x.exponent + 8;
    return {c * mantissa<n>(x), x.sign, x.exponent, error > 64 ? error : 64};
}

template <int n>
constexpr Estimate<n> over_pi(Estimate<n> angle) {
    angle.value = angle.value * inverse_pi<n>;
    return angle;
}

/// 1 / sqrt(x) for x > 0.
template <int n>
constexpr Estimate<n> estimate_rsqrt(const Normalised& x) {
    const int odd = x.exponent & 1;
    return {quotient(one<n>, square_root(mantissa<n>(x) << odd)), false, -(x.exponent - odd) / 2};
}

} // namespace amp::detail

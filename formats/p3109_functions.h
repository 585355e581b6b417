// The functions of IEEE P3109 that are not rational (interim report v4.0, sections 4.10.8 to 4.10.16), for p3109.h:
//
//     std::uint32_t r = to(apply(Function::exp, decode({fx, x})));
//
// A result has 64 bits with a sticky last one, so that the projection is right in every rounding mode. It is computed
// with an error bound; if the bound leaves its first 63 bits open, once more with more words (A. Ziv, 1991). That ends,
// since results that are numbers of 63 bits are known for each of these functions and found first (exact_value).
// Operands have at most 63 significant bits and magnitudes between 2^-640 and 2^640: those of formats whose numbers
// FP32 holds, and of their blocks.
#pragma once

#include <ampscope/formats/bits.h>
#include <ampscope/formats/p3109.h>
#include <ampscope/formats/wide_functions.h>

#include <optional>
#include <string_view>
#include <utility>

namespace amp::p3109 {

/// The functions of one operand.
enum class Function : std::uint8_t {
    rsqrt,
    exp,
    exp2,
    exp_minus_one,
    log,
    log2,
    log_one_plus,
    softplus,
    sin,
    cos,
    tan,
    arc_sin,
    arc_cos,
    arc_tan,
    sin_pi,
    cos_pi,
    tan_pi,
    arc_sin_pi,
    arc_cos_pi,
    arc_tan_pi,
    sinh,
    cosh,
    tanh,
    arc_sinh,
    arc_cosh,
    arc_tanh,
};

/// A function's name in the report, and its results where the operand is no number other than zero.
struct FunctionRow {
    std::string_view name;
    Unpacked of_zero, of_infinity, of_minus_infinity;
};

namespace detail {

using namespace amp::detail;

constexpr Unpacked power_of_two(int exponent, bool sign = false) {
    return {.kind = Kind::finite, .sign = sign, .exponent = exponent, .significand = 1};
}
inline constexpr Unpacked unit = power_of_two(0), half = power_of_two(-1), above = infinity(false),
                          below = infinity(true);
/// Cut to 63 bits, and a sticky one.
inline constexpr Unpacked half_pi{.kind = Kind::finite, .exponent = -63, .significand = 0xc90fdaa22168c235};
inline constexpr Unpacked whole_pi{.kind = Kind::finite, .exponent = -62, .significand = 0xc90fdaa22168c235};
inline constexpr Unpacked ln_2{.kind = Kind::finite, .exponent = -64, .significand = 0xb17217f7d1cf79ab};

} // namespace detail

/// In the order of the enum.
inline constexpr FunctionRow functions[] = {
    {"RSqrt", nan, zero, nan},
    {"Exp", detail::unit, detail::above, zero},
    {"Exp2", detail::unit, detail::above, zero},
    {"ExpMinusOne", zero, detail::above, negate(detail::unit)},
    {"Log", detail::below, detail::above, nan},
    {"Log2", detail::below, detail::above, nan},
    {"LogOnePlus", zero, detail::above, nan},
    {"Softplus", detail::ln_2, detail::above, zero},
    {"Sin", zero, nan, nan},
    {"Cos", detail::unit, nan, nan},
    {"Tan", zero, nan, nan},
    {"ArcSin", zero, nan, nan},
    {"ArcCos", detail::half_pi, nan, nan},
    {"ArcTan", zero, detail::half_pi, negate(detail::half_pi)},
    {"SinPi", zero, nan, nan},
    {"CosPi", detail::unit, nan, nan},
    {"TanPi", zero, nan, nan},
    {"ArcSinPi", zero, nan, nan},
    {"ArcCosPi", detail::half, nan, nan},
    {"ArcTanPi", zero, detail::half, negate(detail::half)},
    {"Sinh", zero, detail::above, detail::below},
    {"Cosh", detail::unit, detail::above, detail::above},
    {"Tanh", zero, detail::unit, negate(detail::unit)},
    {"ArcSinh", zero, detail::above, detail::below},
    {"ArcCosh", nan, detail::above, nan},
    {"ArcTanh", zero, nan, nan},
};

namespace detail {

/// The exponent of the last bit that is set.
constexpr int last_exponent(const Normalised& x) { return x.exponent - 63 + trailing_zeros(x.significand); }

/// An integer: x 2^shift, where that is one, without its sign and modulo 2^32.
constexpr std::uint32_t integer(const Normalised& x, int shift) {
    const int places = x.exponent + shift - 63;
    if (places >= 32) return 0;
    return static_cast<std::uint32_t>(places >= 0 ? x.significand << places : x.significand >> -places);
}

/// sin(pi x), cos(pi x) and tan(pi x) where they are rational: at multiples of 1/2 and of 1/4 (I. Niven, 1956).
constexpr std::optional<Unpacked> exact_of_pi(Function f, const Normalised& x) {
    const bool is_tan = f == Function::tan_pi;
    if (last_exponent(x) < (is_tan ? -2 : -1)) return {};
    if (is_tan) {
        const std::uint32_t eighths = integer(x, 2) % 4;
        if (eighths == 2) return nan;
        return eighths == 0 ? zero : power_of_two(0, (eighths == 3) != x.sign);
    }
    const std::uint32_t quarters = (integer(x, 1) + (f == Function::cos_pi ? 1 : 0)) % 4; // cos x = sin(x + pi / 2)
    if (quarters % 2 == 0) return zero;
    return power_of_two(0, (quarters == 3) != (x.sign && f == Function::sin_pi));
}

/// The results that are dyadic rationals, infinite or NaN. By the theorems of Lindemann and of Gelfond and Schneider
/// all others are irrational, but for arcsin(1/2) / pi and the like, which are not dyadic.
constexpr std::optional<Unpacked> exact_value(Function f, const Normalised& x) {
    const bool power = x.significand << 1 == 0, is_unit = power && x.exponent == 0, outside = x.exponent >= 0;
    switch (f) {
    case Function::rsqrt:
        if (x.sign) return nan;
        if (power && x.exponent % 2 == 0) return power_of_two(-x.exponent / 2);
        break;
    case Function::exp2:
        if (last_exponent(x) >= 0 && x.exponent < 15)
            return power_of_two(static_cast<int>(integer(x, 0)) * (x.sign ? -1 : 1));
        break;
    case Function::log:
    case Function::log2:
        if (x.sign) return nan;
        if (is_unit) return zero;
        if (f == Function::log2 && power)
            return Unpacked{.kind = Kind::finite,
                            .sign = x.exponent < 0,
                            .significand = static_cast<std::uint64_t>(x.exponent < 0 ? -x.exponent : x.exponent)};
        break;
    case Function::log_one_plus:
        if (x.sign && outside) return is_unit ? below : nan;
        break;
    case Function::arc_sin:
    case Function::arc_sin_pi:
        if (outside && !is_unit) return nan;
        if (outside && f == Function::arc_sin_pi) return power_of_two(-1, x.sign);
        break;
    case Function::arc_cos:
    case Function::arc_cos_pi:
        if (outside && !is_unit) return nan;
        if (outside && !x.sign) return zero;
        if (outside && f == Function::arc_cos_pi) return unit;
        break;
    case Function::arc_tan_pi:
        if (is_unit) return power_of_two(-2, x.sign);
        break;
    case Function::arc_cosh:
        if (x.sign || !outside) return nan;
        if (is_unit) return zero;
        break;
    case Function::arc_tanh:
        if (outside) return is_unit ? infinity(x.sign) : nan;
        break;
    case Function::sin_pi:
    case Function::cos_pi:
    case Function::tan_pi: return exact_of_pi(f, x);
    default: break;
    }
    return {};
}

/// A number of at most 63 bits moved by less than its 64th, away from zero or toward it.
constexpr Unpacked beside(const Normalised& x, bool away) {
    const bool below_power = !away && x.significand << 1 == 0;
    return {.kind = Kind::finite,
            .sign = x.sign,
            .exponent = x.exponent - 63 - (below_power ? 1 : 0),
            .significand = below_power ? ~std::uint64_t{0}
                           : away      ? x.significand | 1
                                       : x.significand - 1};
}
constexpr Unpacked beside(const Unpacked& x, bool away) { return beside(Normalised(x), away); }

/// Results that differ from a number of 63 bits by less, relatively, than 2^-64, or lie far beyond all formats. The
/// next term of the series, or what is left of the limit, decides on which side.
constexpr std::optional<Unpacked> near_value(Function f, const Normalised& x) {
    const bool tiny = x.exponent < -40, tinier = x.exponent < -70, huge = x.exponent >= 15;
    const auto far = [](bool sign, bool up) {
        return Unpacked{.kind = Kind::finite,
                        .sign = sign,
                        .exponent = up ? 1 << 20 : -(1 << 20),
                        .significand = std::uint64_t{1} << 63 | 1};
    };
    switch (f) {
    case Function::exp:
    case Function::exp2:
        if (tinier) return beside(unit, !x.sign);
        if (huge) return far(false, !x.sign);
        break;
    case Function::exp_minus_one:
        if (tinier) return beside(x, !x.sign);
        if (x.sign && x.exponent >= 6) return beside(negate(unit), false);
        if (huge) return far(false, true);
        break;
    case Function::log_one_plus:
        if (tinier) return beside(x, x.sign);
        break;
    case Function::softplus:
        if (!x.sign && x.exponent >= 6) return beside(x, true);
        if (huge) return far(false, false);
        break;
    case Function::cos:
    case Function::cos_pi:
        if (tiny) return beside(unit, false);
        break;
    case Function::cosh:
        if (tiny) return beside(unit, true);
        if (huge) return far(false, true);
        break;
    case Function::sinh:
        if (tiny) return beside(x, true);
        if (huge) return far(x.sign, true);
        break;
    case Function::tan:
    case Function::arc_sin:
    case Function::arc_tanh:
        if (tiny) return beside(x, true);
        break;
    case Function::sin:
    case Function::arc_tan:
    case Function::arc_sinh:
        if (tiny) return beside(x, false);
        break;
    case Function::tanh:
        if (tiny) return beside(x, false);
        if (x.exponent >= 5) return beside(power_of_two(0, x.sign), false);
        break;
    case Function::arc_cos_pi:
        if (tinier) return beside(half, x.sign);
        break;
    case Function::arc_tan_pi:
        if (x.exponent > 70) return beside(power_of_two(-1, x.sign), false);
        break;
    default: break;
    }
    return {};
}

/// All others.
template <int n>
constexpr Estimate<n> estimate(Function f, const Normalised& x) {
    const bool tiny = x.exponent < -100;
    const auto of_power = [](const Power<n>& p) { return Estimate<n>{p.m, false, p.k}; };
    switch (f) {
    case Function::rsqrt: return estimate_rsqrt<n>(x);
    case Function::exp: return of_power(exp_power<n>(x));
    case Function::exp2: return of_power(exp2_power<n>(x));
    case Function::exp_minus_one: return estimate_exp_minus_one<n>(x);
    case Function::log: return estimate_log<n>(x);
    case Function::log2: return estimate_log2<n>(x);
    case Function::log_one_plus: return estimate_log_one_plus<n>(x);
    case Function::softplus: return estimate_softplus<n>(x);
    case Function::sin: return estimate_sin(turn_of_radians<n>(x), x.sign);
    case Function::cos: return estimate_cos(turn_of_radians<n>(x));
    case Function::tan: return estimate_tan(turn_of_radians<n>(x), x.sign);
    case Function::arc_sin: return estimate_arc_sin<n>(x);
    case Function::arc_cos: return estimate_arc_cos<n>(x);
    case Function::arc_tan: return estimate_arc_tan2<n>(x, Normalised(unit));
    case Function::sin_pi: return tiny ? estimate_linear(pi<n>, x) : estimate_sin(turn_of_pi<n>(x), x.sign);
    case Function::cos_pi: return estimate_cos(turn_of_pi<n>(x));
    case Function::tan_pi: return tiny ? estimate_linear(pi<n>, x) : estimate_tan(turn_of_pi<n>(x), x.sign);
    case Function::arc_sin_pi: return tiny ? estimate_linear(inverse_pi<n>, x) : over_pi(estimate_arc_sin<n>(x));
    case Function::arc_cos_pi: return over_pi(estimate_arc_cos<n>(x));
    case Function::arc_tan_pi:
        return tiny ? estimate_linear(inverse_pi<n>, x) : over_pi(estimate_arc_tan2<n>(x, Normalised(unit)));
    case Function::sinh: return estimate_sinh_or_cosh<n>(x, false);
    case Function::cosh: return estimate_sinh_or_cosh<n>(x, true);
    case Function::tanh: return estimate_tanh<n>(x);
    case Function::arc_sinh: return estimate_arc_sinh<n>(x);
    case Function::arc_cosh: return estimate_arc_cosh<n>(x);
    case Function::arc_tanh: break;
    }
    return estimate_arc_tanh<n>(x);
}

/// The first 63 bits of x 2^scale, and a sticky one.
constexpr Unpacked cut(const Wide<11>& x, bool sign, int scale, bool exact) {
    const int last = x.leading() - 62, places = last + Wide<11>::fraction_bits;
    const Wide<11> head = x >> places;
    const std::uint64_t bits = std::uint64_t{head.words[9]} << 32 | head.words[10];
    return {.kind = Kind::finite,
            .sign = sign,
            .exponent = last - 1 + scale,
            .significand = bits << 1 | std::uint64_t{!exact || (head << places) != x}};
}

/// The estimate with as many words as it takes. The last count of words is far more than was ever needed.
template <class At>
constexpr Unpacked resolved(const At& at) {
    Unpacked result = nan;
    if (decide(at.template operator()<7>(), result) || decide(at.template operator()<12>(), result)) return result;
    decide(at.template operator()<35>(), result);
    return result;
}

} // namespace detail

constexpr Unpacked apply(Function f, const Unpacked& operand) {
    const FunctionRow& row = functions[static_cast<std::size_t>(f)];
    switch (operand.kind) {
    case Kind::nan: return nan;
    case Kind::zero: return row.of_zero;
    case Kind::infinity: return operand.sign ? row.of_minus_infinity : row.of_infinity;
    case Kind::finite: break;
    }
    const detail::Normalised x(operand);
    if (const auto exact = detail::exact_value(f, x)) return *exact;
    if (const auto near = detail::near_value(f, x)) return *near;
    return detail::resolved([&]<int n>() { return detail::estimate<n>(f, x); });
}

/// sqrt(x^2 + y^2).
constexpr Unpacked hypot(const Unpacked& x, const Unpacked& y) {
    if (x.is_nan() || y.is_nan()) return nan;
    if (x.kind == Kind::infinity || y.kind == Kind::infinity) return infinity(false);
    if (x.kind == Kind::zero || y.kind == Kind::zero) return abs(x.kind == Kind::zero ? y : x);
    detail::Normalised a(abs(x)), b(abs(y));
    if (a.exponent < b.exponent) std::swap(a, b);
    const int below = a.exponent - b.exponent;
    if (below > 40) return detail::beside(a, true); // (b / a)^2 / 2 is below 2^-78
    using Wide = detail::Wide<11>;                  // holds the squares exactly
    const Wide p = detail::mantissa<11>(a), q = detail::mantissa<11>(b) >> below;
    bool exact = true;
    const Wide root = detail::square_root(p * p + q * q, exact);
    return detail::cut(root, false, a.exponent, exact);
}

namespace detail {

/// The angle of a point far to the right: the ratio, which its cube decides only where that has at most 63 bits.
constexpr Unpacked small_angle(const Normalised& y, const Normalised& x, bool over_pi) {
    const Normalised power(power_of_two(y.exponent - x.exponent + 1, y.sign));
    if (over_pi)
        return resolved([&]<int n>() {
            Estimate<n> e = estimate_linear(inverse_pi<n>, power);
            e.value = e.value * quotient(mantissa<n>(y) >> 1, mantissa<n>(x));
            return e;
        });
    const Wide<11> a = mantissa<11>(y) >> 1, b = mantissa<11>(x), q = quotient(a, b);
    const bool exact = q * b == a;
    const Unpacked ratio = cut(q, y.sign, power.exponent, exact);
    return exact && ratio.significand % 2 == 0 ? beside(ratio, false) : ratio;
}

} // namespace detail

/// The angle of the point (x, y), from -pi to pi; in units of pi if `over_pi`: ArcTan2 and ArcTan2Pi.
constexpr Unpacked arc_tan2(const Unpacked& y, const Unpacked& x, bool over_pi = false) {
    if (x.is_nan() || y.is_nan() || (x.kind == y.kind && x.kind != Kind::finite)) return nan;
    const Unpacked &whole = over_pi ? detail::unit : detail::whole_pi, &half = over_pi ? detail::half : detail::half_pi;
    if (x.kind == Kind::infinity || y.kind == Kind::zero) return x.sign ? whole : zero;
    if (y.kind == Kind::infinity || x.kind == Kind::zero) return y.sign ? negate(half) : half;
    const detail::Normalised a(y), b(x);
    const int apart = a.exponent - b.exponent;
    if (over_pi && apart == 0 && a.significand == b.significand) // 1/4 or 3/4
        return {.kind = Kind::finite, .sign = y.sign, .exponent = -2, .significand = x.sign ? 3U : 1U};
    if (over_pi && apart > 70) return detail::beside(y.sign ? negate(half) : half, x.sign);
    if (over_pi && apart < -70 && x.sign) return detail::beside(y.sign ? negate(whole) : whole, false);
    if (apart < -100 && !x.sign) return detail::small_angle(a, b, over_pi);
    return detail::resolved([&]<int n>() {
        const detail::Estimate<n> e = detail::estimate_arc_tan2<n>(a, b);
        return over_pi ? detail::over_pi(e) : e;
    });
}

} // namespace amp::p3109

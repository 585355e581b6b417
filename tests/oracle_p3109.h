// The oracle of IEEE P3109: the internal functions of the interim report v4.0 (June 2026), sections 3.1 and 4.7, on
// exact rational numbers and in the report's own terms. It shares no code with formats/ and none with oracle.h;
// policy.h provides names of modes only.
#pragma once

#include <ampscope/formats/policy.h>

#include <boost/multiprecision/cpp_int.hpp>

#include <cstdint>
#include <string>
#include <utility>

namespace oracle::p3109 {

using Integer = boost::multiprecision::cpp_int;
using Rational = boost::multiprecision::cpp_rational;

/// A number of the closed extended reals.
struct Real {
    enum class Kind : std::uint8_t { number, minus_infinity, plus_infinity, nan } kind = Kind::number;
    Rational x = 0;
    bool operator==(const Real&) const = default;
};

inline const Real nan{Real::Kind::nan}, plus_infinity{Real::Kind::plus_infinity},
    minus_infinity{Real::Kind::minus_infinity};

inline bool is_number(const Real& x) { return x.kind == Real::Kind::number; }

inline Rational power_of_two(int e) { return e >= 0 ? Rational(Integer(1) << e) : Rational(1, Integer(1) << -e); }

inline Real operator-(const Real& x) {
    if (x.kind == Real::Kind::plus_infinity) return minus_infinity;
    if (x.kind == Real::Kind::minus_infinity) return plus_infinity;
    return {x.kind, -x.x};
}

/// Section 3.1: the format-defining parameters, and the bias.
struct Format {
    int k = 8, p = 3;
    bool is_signed = true, extended = true;

    int bias() const { return 1 << (k - p - (is_signed ? 1 : 0)); }
    std::uint32_t codes() const { return std::uint32_t{1} << k; }
    std::string name() const {
        return "binary" + std::to_string(k) + "p" + std::to_string(p) + (is_signed ? "s" : "u") +
               (extended ? "e" : "f");
    }
};

/// Section 4.7.2. `subnormal` is set for subnormal numbers.
inline Real decode(const Format& f, std::uint32_t x, bool* subnormal = nullptr) {
    const std::uint32_t half = f.codes() / 2;
    if (x == (f.is_signed ? half : f.codes() - 1)) return nan;
    if (f.is_signed && f.extended && x == half - 1) return plus_infinity;
    if (f.is_signed && f.extended && x == f.codes() - 1) return minus_infinity;
    if (!f.is_signed && f.extended && x == f.codes() - 2) return plus_infinity;
    if (f.is_signed && x > half) return -decode(f, x - half, subnormal);
    const std::uint32_t t = x % (std::uint32_t{1} << (f.p - 1));
    const int e = static_cast<int>(x / (std::uint32_t{1} << (f.p - 1)));
    if (subnormal != nullptr) *subnormal = e == 0 && t != 0;
    const Rational fraction = Rational(t) * power_of_two(1 - f.p);
    if (e == 0) return {Real::Kind::number, fraction * power_of_two(1 - f.bias())};
    return {Real::Kind::number, (1 + fraction) * power_of_two(e - f.bias())};
}

inline int floor_log2(const Rational& x) {
    const Integer n = numerator(x), d = denominator(x);
    const int e = static_cast<int>(msb(n)) - static_cast<int>(msb(d)); // 2^(e - 1) < x < 2^(e + 1)
    const bool reached = e >= 0 ? n >= (d << e) : (n << -e) >= d;
    return reached ? e : e - 1;
}

/// x 2^e for x >= 0, as it is, not in lowest terms.
struct Quotient {
    Integer n, d;

    explicit Quotient(const Rational& x, int e = 0) : n(numerator(x)), d(denominator(x)) {
        if (e >= 0) n <<= e;
        else d <<= -e;
    }
    Quotient(Integer numerator, Integer denominator) : n(std::move(numerator)), d(std::move(denominator)) {}
    Integer floor() const { return n / d; }
    Integer nearest_even() const {
        const Integer down = n / d, twice = 2 * (n % d);
        return twice > d || (twice == d && down % 2 != 0) ? Integer(down + 1) : down;
    }
};

/// Boost's own comparison expands both into continued fractions.
inline bool less(const Rational& x, const Rational& y) {
    return numerator(x) * denominator(y) < numerator(y) * denominator(x);
}

/// A rounding mode; the last three take `bits` random bits, whose value is `random`.
struct Mode {
    enum Name : std::uint8_t {
        nearest_ties_to_even,
        nearest_ties_to_away,
        toward_positive,
        toward_negative,
        toward_zero,
        to_odd,
        stochastic_a,
        stochastic_b,
        stochastic_c
    } name = nearest_ties_to_even;
    int bits = 0;
    std::uint32_t random = 0;
};

/// Section 4.7.4, RoundAway, for the fraction nu.
inline bool rounds_away(const Mode& mode, const Rational& x, const Quotient& nu, bool code_is_even) {
    const Integer n = Integer(1) << mode.bits;
    switch (mode.name) {
    case Mode::toward_zero: return false;
    case Mode::toward_positive: return nu.n > 0 && x > 0;
    case Mode::toward_negative: return nu.n > 0 && x < 0;
    case Mode::nearest_ties_to_away: return 2 * nu.n >= nu.d;
    case Mode::nearest_ties_to_even: return 2 * nu.n > nu.d || (2 * nu.n == nu.d && !code_is_even);
    case Mode::to_odd: return nu.n > 0 && code_is_even;
    case Mode::stochastic_a: return Quotient(nu.n * n, nu.d).floor() + mode.random >= n;
    case Mode::stochastic_b: return Quotient(nu.n * n * 2, nu.d).floor() + (2 * Integer(mode.random) + 1) >= 2 * n;
    case Mode::stochastic_c: break;
    }
    return Quotient(nu.n * n, nu.d).nearest_even() + mode.random >= n;
}

/// Section 4.7.4, RoundToPrecision.
inline Real round_to_precision(const Format& f, const Mode& mode, const Real& x) {
    if (!is_number(x) || x.x == 0) return x;
    const Rational magnitude = abs(x.x);
    const int q = std::max(floor_log2(magnitude), 1 - f.bias()) - f.p + 1;
    const Quotient significand(magnitude, -q);
    const Integer down = significand.floor();
    const bool code_is_even = f.p > 1 ? down % 2 == 0 : down == 0 || (q + f.bias()) % 2 == 0;
    const Quotient nu(significand.n - down * significand.d, significand.d);
    const bool away = rounds_away(mode, x.x, nu, code_is_even);
    const Rational rounded = Rational(down + (away ? 1 : 0)) * power_of_two(q);
    return {Real::Kind::number, x.x < 0 ? Rational(-rounded) : rounded};
}

enum class Saturation : std::uint8_t { sat_finite, sat_propagate, sat_none };

/// Section 4.7.5, line by line.
inline Real saturate(const Format& f, Saturation sat, Mode::Name round, const Real& x, const Real& low,
                     const Real& high) {
    const bool above = is_number(x) && less(high.x, x.x), below = is_number(x) && less(x.x, low.x);
    if (x == nan || (is_number(x) && !above && !below)) return x;
    if (sat == Saturation::sat_finite) return x == plus_infinity || above ? high : low;
    if (sat == Saturation::sat_propagate) {
        if (x == plus_infinity) return f.extended ? x : high;
        if (x == minus_infinity) return f.is_signed && f.extended ? x : low;
        return below ? low : high;
    }
    if (x == plus_infinity) return f.extended ? x : high;
    if (x == minus_infinity) return f.is_signed ? f.extended ? x : low : nan;
    if (round == Mode::to_odd && above && !f.is_signed && f.extended) return high;
    if ((round == Mode::toward_zero || round == Mode::toward_negative) && above) return high;
    if ((round == Mode::toward_zero || round == Mode::toward_positive) && below) return low;
    if (below && f.is_signed && f.extended) return minus_infinity;
    if (below) return f.is_signed ? low : nan;
    return f.extended ? plus_infinity : high;
}

/// Section 4.7.6. Projection, section 4.7.3, is encode of saturate of round_to_precision.
inline std::uint32_t encode(const Format& f, const Real& x) {
    const std::uint32_t half = f.codes() / 2;
    if (x == nan) return f.is_signed ? half : f.codes() - 1;
    if (x == plus_infinity) return f.is_signed ? half - 1 : f.codes() - 2;
    if (x == minus_infinity || x.x < 0) return encode(f, -x) + half;
    if (x.x == 0) return 0;
    const int e = std::max(floor_log2(x.x), 1 - f.bias());
    const auto s = static_cast<std::uint32_t>(Quotient(x.x, f.p - 1 - e).floor());
    const std::uint32_t leading = std::uint32_t{1} << (f.p - 1);
    return s < leading ? s : s % leading + static_cast<std::uint32_t>(e + f.bias()) * leading;
}

/// The ends of a format's finite range.
struct Range {
    Real low, high;
    explicit Range(const Format& f) {
        const std::uint32_t last = (f.is_signed ? f.codes() / 2 : f.codes() - 1) - 1 - (f.extended ? 1 : 0);
        high = decode(f, last);
        if (f.is_signed) low = -high;
    }
};

// Sections 4.10 and 4.11 on closed extended reals, pattern by pattern.

inline int sign(const Real& x) {
    if (!is_number(x)) return x == plus_infinity ? 1 : -1;
    return x.x > 0 ? 1 : x.x < 0 ? -1 : 0;
}
inline Real number(Rational x) { return {Real::Kind::number, std::move(x)}; }
inline Real infinite(int sign) { return sign > 0 ? plus_infinity : minus_infinity; }
inline Real absolute(const Real& x) { return x == nan || sign(x) >= 0 ? x : -x; }

inline Real add(const Real& x, const Real& y) {
    if (x == nan || y == nan) return nan;
    if (!is_number(x) && !is_number(y)) return x == y ? x : nan;
    if (!is_number(x)) return x;
    return is_number(y) ? number(x.x + y.x) : y;
}

inline Real multiply(const Real& x, const Real& y) {
    if (x == nan || y == nan) return nan;
    if (is_number(x) && is_number(y)) return number(x.x * y.x);
    return sign(x) * sign(y) == 0 ? nan : infinite(sign(x) * sign(y));
}

inline Real divide(const Real& x, const Real& y) {
    if (x == nan || y == nan || (!is_number(x) && !is_number(y)) || sign(y) == 0) return nan;
    if (!is_number(x)) return infinite(sign(x) * sign(y));
    return is_number(y) ? number(x.x / y.x) : number(0);
}

/// The root to 300 bits behind the point; if it is not exact, moved a little upwards from what was cut off.
inline Real square_root(const Real& x) {
    if (x == nan || sign(x) < 0) return nan;
    if (!is_number(x)) return x;
    const Integer shifted = Quotient(x.x, 600).floor();
    Integer rest;
    const Integer root = sqrt(shifted, rest);
    const bool exact = rest == 0 && Rational(shifted) == x.x * power_of_two(600);
    return number(Rational(root) * power_of_two(-300) + (exact ? Rational(0) : power_of_two(-310)));
}

inline bool less(const Real& x, const Real& y) {
    if (is_number(x) && is_number(y)) return less(x.x, y.x);
    return x != y && (x == minus_infinity || y == plus_infinity);
}

inline Real minimum(const Real& x, const Real& y) { return x == nan || y == nan ? nan : less(x, y) ? x : y; }
inline Real maximum(const Real& x, const Real& y) { return x == nan || y == nan ? nan : less(x, y) ? y : x; }

inline Real minimum_magnitude(const Real& x, const Real& y) {
    if (x == nan || y == nan) return nan;
    if (absolute(x) == absolute(y)) return minimum(x, y);
    return less(absolute(x), absolute(y)) ? x : y;
}
inline Real maximum_magnitude(const Real& x, const Real& y) {
    if (x == nan || y == nan) return nan;
    if (absolute(x) == absolute(y)) return maximum(x, y);
    return less(absolute(x), absolute(y)) ? y : x;
}

inline Real maximum_finite(const Real& x, const Real& y) {
    if (x == nan || y == nan) return x == nan ? y : x;
    if (is_number(x) != is_number(y)) return is_number(x) ? x : y;
    return maximum(x, y);
}
inline Real minimum_finite(const Real& x, const Real& y) {
    if (x == nan || y == nan) return x == nan ? y : x;
    if (is_number(x) != is_number(y)) return is_number(x) ? x : y;
    return minimum(x, y);
}

/// Section 4.11.4, in the report's order.
inline Real clamp(const Real& x, const Real& low, const Real& high) {
    if (x == nan || low == nan || high == nan || less(high, low)) return nan;
    if (low == plus_infinity && high == plus_infinity) return high;
    if (low == minus_infinity && high == minus_infinity) return low;
    if (high == minus_infinity || low == plus_infinity) return nan;
    if (!less(low, x)) return low;
    return less(x, high) ? x : high;
}

/// Section 5.1.2, before the projection.
inline Real block_element(const Real& scale, const Real& x) {
    if (scale == nan || x == nan) return nan;
    if (sign(scale) == 0) return number(0);
    return is_number(scale) ? divide(x, scale) : number(sign(x) * sign(scale));
}

} // namespace oracle::p3109

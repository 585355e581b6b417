// Float<spec>: a number of one format as a value type, correctly rounded by arithmetic.h.
//
//     using fp16 = amp::Float<amp::format("fp16")>;
//     fp16 x{0.1f};                     // rounds to nearest even
//     float back{x * x + fp16{1.0f}};   // two roundings; fma(x, x, one) has one
//
// Operators round to nearest even, overflow to infinity (NaN or the largest value where there is none) and keep
// subnormals. For any other policy use Arithmetic on code().
#pragma once

#include <ampscope/formats/arithmetic.h>

#include <bit>
#include <compare>
#include <functional>
#include <limits>
#include <type_traits>

namespace amp {

template <FormatSpec spec>
class Float {
    static_assert(!spec.is_scale(), "scale formats take no part in arithmetic");

  public:
    using Code = std::conditional_t<(spec.bits() <= 8), std::uint8_t,
                                    std::conditional_t<(spec.bits() <= 16), std::uint16_t, std::uint32_t>>;
    static constexpr FormatSpec format = spec;

    constexpr Float() = default; ///< +0
    /// Rounded to nearest even, once, from every arithmetic type.
    template <class T>
    requires std::is_arithmetic_v<T>
    constexpr explicit Float(T x) : code_(static_cast<Code>(encode_number(x))) {}
    /// From another format, in one rounding.
    template <FormatSpec other>
    requires(other != spec) constexpr explicit Float(Float<other> x)
        : code_(static_cast<Code>(converted(other, x.code()))) {}

    [[nodiscard]] static constexpr Float from_code(std::uint32_t code) {
        Float x;
        x.code_ = static_cast<Code>(code & spec.code_mask());
        return x;
    }
    [[nodiscard]] constexpr Code code() const { return code_; }
    constexpr explicit operator float() const { return decode(spec, code_, NanRule::payload); } ///< exact
    constexpr explicit operator double() const { return float(*this); }
    constexpr explicit operator int() const { return static_cast<int>(float(*this)); }

    friend constexpr Float operator+(Float a, Float b) { return from_code(unit().add(a.code_, b.code_)); }
    friend constexpr Float operator-(Float a, Float b) { return from_code(unit().sub(a.code_, b.code_)); }
    friend constexpr Float operator*(Float a, Float b) { return from_code(unit().mul(a.code_, b.code_)); }
    friend constexpr Float operator/(Float a, Float b) { return from_code(unit().div(a.code_, b.code_)); }
    friend constexpr Float operator+(Float a) { return a; }
    /// Flips the sign, of NaN too. +0 stays where there is no -0. The least integer becomes the largest one.
    friend constexpr Float operator-(Float a) {
        if (spec.negatives != Negatives::sign_and_magnitude) return Float{} - a;
        if (!spec.has_negative_zero() && (a.code_ & spec.magnitude_mask()) == 0) return a;
        return from_code(a.code_ ^ spec.sign_mask());
    }
    constexpr Float& operator+=(Float x) { return *this = *this + x; }
    constexpr Float& operator-=(Float x) { return *this = *this - x; }
    constexpr Float& operator*=(Float x) { return *this = *this * x; }
    constexpr Float& operator/=(Float x) { return *this = *this / x; }

    friend constexpr bool operator==(Float a, Float b) { return unit().eq(a.code_, b.code_); }
    friend constexpr std::partial_ordering operator<=>(Float a, Float b) {
        switch (unit().compare(a.code_, b.code_, true)) {
        case Order::less: return std::partial_ordering::less;
        case Order::equal: return std::partial_ordering::equivalent;
        case Order::greater: return std::partial_ordering::greater;
        case Order::unordered: break;
        }
        return std::partial_ordering::unordered;
    }

    // Found by argument-dependent lookup, as for float: fma(x, y, z), sqrt(x) ...
    friend constexpr Float fma(Float a, Float b, Float c) { return from_code(unit().fma(a.code_, b.code_, c.code_)); }
    friend constexpr Float sqrt(Float a) { return from_code(unit().sqrt(a.code_)); }
    friend constexpr Float remainder(Float a, Float b) { return from_code(unit().remainder(a.code_, b.code_)); }
    friend constexpr Float rint(Float a) { return from_code(unit().round_to_integral(a.code_)); }
    friend constexpr Float abs(Float a) { return signbit(a) && !isnan(a) ? -a : a; }
    friend constexpr Float min(Float a, Float b) { return from_code(unit().min(a.code_, b.code_)); }
    friend constexpr Float max(Float a, Float b) { return from_code(unit().max(a.code_, b.code_)); }
    friend constexpr bool isnan(Float a) { return unpack(spec, a.code_).is_nan(); }
    friend constexpr bool isinf(Float a) { return unpack(spec, a.code_).kind == Kind::infinity; }
    friend constexpr bool isfinite(Float a) { return !isnan(a) && !isinf(a); }
    friend constexpr bool signbit(Float a) { return (a.code_ & spec.sign_mask()) != 0; }

  private:
    static constexpr Arithmetic unit() { return {spec}; }

    /// x as a double, rounded to odd: the rounding that follows still sees whether anything was cut off.
    static constexpr double to_odd(long double x) {
        const auto nearest = static_cast<double>(x);
        if (x != x || nearest == x) return nearest;
        const auto bits = std::bit_cast<std::uint64_t>(nearest);
        const bool away = (nearest > x) == (x > 0);
        return std::bit_cast<double>((bits - std::uint64_t{away}) | 1);
    }

    template <class T>
    static constexpr std::uint32_t encode_number(T x) {
        Flags unused;
        if constexpr (std::is_same_v<T, long double>) return encode(spec, to_odd(x));
        else if constexpr (std::is_floating_point_v<T>) return encode(spec, x);
        else {
            const bool negative = x < T{0};
            const auto magnitude = static_cast<std::uint64_t>(x);
            return round_pack(spec, negative, 0, negative ? ~magnitude + 1 : magnitude, {}, 0, unused);
        }
    }
    static constexpr std::uint32_t converted(const FormatSpec& from, std::uint32_t code) {
        Flags unused;
        return convert(from, code, spec, {}, 0, unused);
    }

    Code code_ = 0;
};

} // namespace amp

template <amp::FormatSpec spec>
class std::numeric_limits<amp::Float<spec>> {
    using F = amp::Float<spec>;
    /// floor(n * log10(2)) and the like; the formula is exact for every n that occurs here.
    static constexpr int decimal(int bits) { return bits * 30103 / 100000; }
    /// floor(log10(max())). max_exponent does not decide it: 15 and 8 have the same exponent, but only 15 is above 10.
    static constexpr int decimal_of_max() {
        int n = 0;
        for (double power = 10; power <= static_cast<double>(max()); power *= 10) ++n;
        return n;
    }

  public:
    static constexpr bool is_specialized = true, is_signed = spec.is_signed, is_integer = false, is_exact = false,
                          is_bounded = true, is_modulo = false;
    static constexpr bool has_infinity = spec.has_infinity(), has_quiet_NaN = spec.has_nan();
    static constexpr bool has_signaling_NaN = spec.has_nan_payload() && spec.fraction_bits > 1;
    static constexpr bool is_iec559 = spec.has_nan_payload();
    static constexpr std::float_denorm_style has_denorm = std::denorm_present;
    static constexpr bool has_denorm_loss = false, traps = false, tinyness_before = false;
    static constexpr std::float_round_style round_style = std::round_to_nearest;
    static constexpr int radix = 2, digits = spec.precision(), digits10 = decimal(spec.precision() - 1);
    static constexpr int max_digits10 = decimal(spec.precision()) + 2;
    static constexpr int min_exponent = spec.min_exponent() + 1, max_exponent = spec.max_exponent() + 1;
    static constexpr int min_exponent10 = -decimal(-spec.min_exponent()), max_exponent10 = decimal_of_max();

    static constexpr F min() { return F::from_code(spec.min_normal_code()); }
    static constexpr F max() { return F::from_code(spec.max_code()); }
    static constexpr F lowest() { return F::from_code(spec.with_sign(spec.max_code(true), true)); }
    static constexpr F denorm_min() { return F::from_code(1); }
    static constexpr F epsilon() { return F{2.0 / static_cast<double>(std::uint64_t{1} << spec.precision())}; }
    static constexpr F round_error() { return F{0.5}; }
    static constexpr F infinity() { return F::from_code(spec.has_infinity() ? spec.infinity_code() : 0); }
    static constexpr F quiet_NaN() { return F::from_code(spec.has_nan() ? spec.nan_code() : 0); }
    static constexpr F signaling_NaN() { return F::from_code(has_signaling_NaN ? spec.infinity_code() + 1 : 0); }
};

template <amp::FormatSpec spec>
struct std::hash<amp::Float<spec>> {
    /// +0 and -0 are equal, so they hash alike.
    std::size_t operator()(amp::Float<spec> x) const {
        return std::hash<std::uint32_t>{}(x == amp::Float<spec>{} ? 0u : std::uint32_t{x.code()});
    }
};

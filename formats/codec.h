// Codes to values and back. unpack() takes a code (or a float or double) apart, round_pack() is the only function of
// the project that rounds, and encode, decode, quantize and convert are those two put together.
//
// Every function is total: any bit pattern has a defined result and nothing throws. A code is an unsigned integer in
// the low bits() of a std::uint32_t; higher bits of an argument are ignored.
#pragma once

#include <ampscope/formats/bits.h>
#include <ampscope/formats/policy.h>
#include <ampscope/formats/spec.h>

#include <bit>
#include <concepts>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace amp {

enum class Kind : std::uint8_t { zero, finite, infinity, nan };

/// A number taken apart: a finite one is (-1)^sign * significand * 2^exponent, its significand not 0 and not
/// normalised. For a NaN the significand holds the fraction field, left-aligned: bit 63 is the quiet bit.
struct Unpacked {
    Kind kind = Kind::zero;
    bool sign = false;
    bool subnormal = false; ///< whether the number is subnormal in the format it was unpacked from
    int exponent = 0;
    std::uint64_t significand = 0;

    [[nodiscard]] constexpr bool is_nan() const { return kind == Kind::nan; }
    /// IEEE 754 signalling NaN. Formats without infinities have quiet NaNs only.
    [[nodiscard]] constexpr bool is_signaling() const { return is_nan() && significand >> 63 == 0; }
};

// The fields are locals until the end: g++ 12 keeps a struct that is filled bit by bit in memory, writes a byte of it
// and reads eight, which costs more than all the rest.
constexpr Unpacked unpack(const FormatSpec& f, std::uint32_t code) {
    constexpr std::uint64_t top = std::uint64_t{1} << 63;
    const std::uint32_t magnitude = f.magnitude_of(code);
    const bool sign = f.is_negative(code);
    if (f.nan_is_negative_zero() && sign && magnitude == 0)
        return {.kind = Kind::nan, .sign = true, .significand = top};
    if (f.has_nan() && magnitude > f.max_code()) {
        if (f.has_infinity() && magnitude == f.infinity_code()) return {.kind = Kind::infinity, .sign = sign};
        if (!f.has_nan_payload()) return {.kind = Kind::nan, .sign = sign, .significand = top};
        const std::uint64_t fraction = magnitude & f.fraction_mask();
        return {.kind = Kind::nan, .sign = sign, .significand = fraction << (64 - f.fraction_bits)};
    }
    const bool implicit = magnitude >= f.first_implicit_code();
    const int field = static_cast<int>(magnitude >> f.fraction_bits);
    const std::uint64_t significand = (magnitude & f.fraction_mask()) | std::uint64_t{implicit} << f.fraction_bits;
    return {.kind = significand == 0 ? Kind::zero : Kind::finite,
            .sign = sign,
            .subnormal = !implicit && significand != 0 && !f.is_integer(),
            .exponent = (implicit ? field - f.bias() : f.first_binade()) - f.fraction_bits,
            .significand = significand};
}

/// The format of containers: every value of every format of the table is an FP32 value.
inline constexpr float largest_float = 0x1.fffffep127F;

constexpr bool is_finite(float x) { return (std::bit_cast<std::uint32_t>(x) & 0x7f800000) != 0x7f800000; }

/// A float or double taken apart. A double is only a source of data: its format has no row in the table, since not
/// every double is an FP32 value.
template <std::floating_point Real>
requires(std::numeric_limits<Real>::is_iec559 && sizeof(Real) <= 8) constexpr Unpacked unpack(Real x) {
    using Bits = std::conditional_t<sizeof(Real) == 4, std::uint32_t, std::uint64_t>;
    constexpr int fraction_bits = std::numeric_limits<Real>::digits - 1;
    constexpr int bias = std::numeric_limits<Real>::max_exponent - 1, max_field = 2 * bias + 1;
    const auto bits = std::bit_cast<Bits>(x);
    const bool sign = bits >> (8 * sizeof(Real) - 1) != 0;
    const auto field = static_cast<int>(bits >> fraction_bits & max_field);
    const std::uint64_t fraction = bits & ((Bits{1} << fraction_bits) - 1);
    if (field == max_field)
        return {.kind = fraction == 0 ? Kind::infinity : Kind::nan,
                .sign = sign,
                .significand = fraction << (64 - fraction_bits)};
    const std::uint64_t significand = fraction | std::uint64_t{field != 0} << fraction_bits;
    return {.kind = significand == 0 ? Kind::zero : Kind::finite,
            .sign = sign,
            .subnormal = field == 0 && fraction != 0,
            .exponent = (field == 0 ? 1 : field) - bias - fraction_bits,
            .significand = significand};
}

/// x >> n, with the bits shifted out folded into the last bit kept: "below, at or above the middle" stays right.
constexpr std::uint64_t shift_right_sticky(std::uint64_t x, int n) {
    if (n <= 0) return x;
    if (n >= 64) return x != 0;
    return x >> n | ((x << (64 - n)) != 0);
}

namespace detail {

/// The integer f * 2^b of stochastic rounding; `fraction` is f as a 64-bit fixed-point number.
constexpr std::uint64_t random_bits_of(std::uint64_t fraction, const Policy& policy) {
    const int b = policy.random_bits;
    constexpr std::uint64_t half = std::uint64_t{1} << 63;
    const std::uint64_t down = fraction >> (64 - b), rest = fraction << b;
    switch (policy.variant) {
    case StochasticVariant::a: break;
    case StochasticVariant::b: return down + std::uint64_t{rest >= half};
    case StochasticVariant::c: return down + std::uint64_t{rest > half || (rest == half && down % 2 != 0)};
    }
    return down;
}

/// Step 3 of round_pack: removes the last `drop` bits (drop >= 1) of `significand` (bit 63 set) and rounds. Sets
/// `exact`. The result may have one bit more than was kept. `flip` is 1 where the code is odd iff the kept bits are
/// even, else 0.
constexpr std::uint64_t round_significand(std::uint64_t significand, int drop, bool sign, const Policy& policy,
                                          std::uint32_t random, bool& exact, std::uint64_t flip = 0) {
    const std::uint64_t kept = drop < 64 ? significand >> drop : 0;
    const bool odd = ((kept ^ flip) & 1) != 0;
    // The discarded fraction f as a 64-bit fixed-point number; what lies below its last bit is folded into it.
    const std::uint64_t fraction = drop <= 64 ? significand << (64 - drop) : shift_right_sticky(significand, drop - 64);
    constexpr std::uint64_t half = std::uint64_t{1} << 63;
    exact = fraction == 0;
    bool up = false;
    switch (policy.rounding) {
    case Rounding::nearest_even: up = fraction > half || (fraction == half && odd); break;
    case Rounding::nearest_away: up = fraction >= half; break;
    case Rounding::toward_zero: break;
    case Rounding::down: up = !exact && sign; break;
    case Rounding::up: up = !exact && !sign; break;
    case Rounding::to_odd: up = !exact && !odd; break;
    case Rounding::stochastic:
        up = (random & ((std::uint64_t{1} << policy.random_bits) - 1)) < random_bits_of(fraction, policy);
        break;
    }
    return kept + std::uint64_t{up};
}

/// Whether what exceeds the largest finite value becomes infinity. Rounding to odd stores that of the two whose code is
/// odd: the largest finite value but in the formats of IEEE P3109 with a sign.
constexpr bool overflows_to_infinity(const FormatSpec& f, Rounding rounding, bool sign) {
    switch (rounding) {
    case Rounding::toward_zero: return false;
    case Rounding::to_odd: return f.has_infinity() && f.infinity_code() % 2 != 0;
    case Rounding::down: return sign;
    case Rounding::up: return !sign;
    case Rounding::nearest_even:
    case Rounding::nearest_away:
    case Rounding::stochastic: break;
    }
    return true;
}

/// The code of a NaN made from the operand u. Formats without NaN store +max.
constexpr std::uint32_t pack_nan(const FormatSpec& f, const Unpacked& u, NanRule rule, Flags& flags) {
    if (u.is_signaling()) flags.raise(Flags::invalid);
    if (!f.has_nan()) {
        flags.raise(Flags::invalid);
        return f.max_code();
    }
    const std::uint32_t canonical = f.nan_code();
    const std::uint32_t sign = u.sign && f.has_negative_zero() ? f.sign_mask() : 0;
    switch (rule) {
    case NanRule::canonical: break;
    case NanRule::keep_sign: return canonical | sign;
    case NanRule::payload:
        return f.has_nan_payload()
                   ? canonical | sign | static_cast<std::uint32_t>(u.significand >> (64 - f.fraction_bits))
                   : canonical | sign;
    case NanRule::all_ones: return f.has_nan_payload() ? f.magnitude_mask() : canonical;
    case NanRule::all_ones_keep_sign: return (f.has_nan_payload() ? f.magnitude_mask() : canonical) | sign;
    }
    return canonical;
}

/// The NaN that stands for infinity in a format that has NaN only; its sign shows except under NanRule::canonical.
constexpr std::uint32_t nan_of_overflow(const FormatSpec& f, bool sign, NanRule rule) {
    return f.nan_code() | (sign && rule != NanRule::canonical && f.has_negative_zero() ? f.sign_mask() : 0);
}

/// The code of the largest finite value of that sign: the end of the range. Formats without sign end at zero below.
constexpr std::uint32_t pack_end(const FormatSpec& f, bool sign) {
    return sign && !f.is_signed ? 0 : f.with_sign(f.max_code(sign), sign);
}

/// The code of a zero; -0 only where the format has it. E8M0 has no zero and stores its smallest value, 2^-127, as CUDA
/// does.
constexpr std::uint32_t pack_zero(const FormatSpec& f, bool sign, const Policy& policy = {}) {
    return sign && f.has_negative_zero() && !policy.projects() ? f.sign_mask() : 0;
}

/// The code of a number or of an infinity below the range of a format without sign.
constexpr std::uint32_t pack_negative(const FormatSpec& f, bool infinite, const Policy& policy, Flags& flags) {
    const bool to_zero = policy.overflow == Overflow::sat_none
                             ? !infinite && !overflows_to_infinity(f, policy.rounding, true) &&
                                   policy.rounding != Rounding::to_odd // section 4.7.5
                             : policy.projects();
    flags.raise(to_zero ? Flags::overflow | Flags::inexact : Flags::invalid);
    return to_zero ? 0 : f.nan_code();
}

/// The code of an infinity under the overflow policy. Where the format has none and the policy does not saturate it,
/// the result is NaN (+-max without NaN) and invalid is raised.
constexpr std::uint32_t pack_infinity(const FormatSpec& f, bool sign, const Policy& policy, Flags& flags) {
    if (!f.is_signed && sign) return pack_negative(f, true, policy, flags);
    if (policy.overflow == Overflow::saturate_all || policy.overflow == Overflow::sat_finite) return pack_end(f, sign);
    if (f.has_infinity()) return f.with_sign(f.infinity_code(), sign);
    flags.raise(Flags::invalid);
    return f.has_nan() && !policy.projects() ? nan_of_overflow(f, sign, policy.nan) : pack_end(f, sign);
}

/// The code that an overflow stores (IEEE 754-2019 section 7.4, extended to formats without infinities).
constexpr std::uint32_t pack_overflow(const FormatSpec& f, bool sign, const Policy& policy, Flags& flags) {
    flags.raise(Flags::overflow | Flags::inexact);
    const bool saturates = policy.overflow != Overflow::infinity && policy.overflow != Overflow::sat_none;
    if (saturates || !overflows_to_infinity(f, policy.rounding, sign)) return pack_end(f, sign);
    if (f.has_infinity()) return f.with_sign(f.infinity_code(), sign);
    return f.has_nan() && !policy.projects() ? nan_of_overflow(f, sign, policy.nan) : pack_end(f, sign);
}

} // namespace detail

/// Rounds (-1)^sign * significand * 2^exponent to `f`: the only rounding of the project. An inexact significand must
/// end in a sticky bit (bit 0 is set; the true value lies strictly between significand - 1 and significand + 1) and
/// have at least precision + random_bits + 2 significant bits. `random` is used by Rounding::stochastic only.
constexpr std::uint32_t round_pack(const FormatSpec& f, bool sign, int exponent, std::uint64_t significand,
                                   const Policy& policy, std::uint32_t random, Flags& flags) {
    if (significand == 0) return detail::pack_zero(f, sign, policy);
    const bool below_range = sign && !f.is_signed; // unless it rounds to zero, under a policy that asks for it
    if (below_range && !policy.projects()) return detail::pack_negative(f, false, policy, flags);
    // 1. Normalise: shift the leading bit to position 63; `leading` is its exponent.
    const int shift = leading_zeros(significand);
    significand <<= shift;
    const int leading = exponent - shift + 63;

    // 2. Find the last place: that of the leading bit's binade or, below the smallest normal, that of the subnormals.
    const bool below_normal = leading < f.first_binade();
    const int binade = below_normal ? f.first_binade() : leading;
    const int drop = 63 - f.fraction_bits + (binade - leading);

    // 3. Round. `kept` is in units of the last place; a carry to the next binade needs no special case. The code of the
    // result is `base` + `kept`: the fields of consecutive binades are consecutive, and the implicit bit adds one to
    // the field. With one significant bit every significand is odd: there the exponent decides which code is even.
    const std::int64_t implicit = std::int64_t{1} << f.fraction_bits;
    const std::int64_t base = (binade - f.first_binade()) * implicit - (f.has_zero ? 0 : implicit);
    const auto flip = static_cast<std::uint64_t>(base) & 1;
    bool exact = true;
    const std::uint64_t kept = detail::round_significand(significand, drop, sign, policy, random, exact, flip);

    // 4. Make the code.
    std::int64_t code = base + static_cast<std::int64_t>(kept);
    if (code < 0) code = 0; // the format has no zero: the smallest value

    // 5. Overflow: the rounded magnitude, as if the exponent were unbounded, exceeds the largest finite value.
    if (below_range && code != 0) return detail::pack_negative(f, false, policy, flags);
    if (code > static_cast<std::int64_t>(f.max_code(sign))) return detail::pack_overflow(f, sign, policy, flags);

    // 6. Exceptions. Tiny after rounding: below the smallest normal when rounded to full precision, as if the exponent
    // were unbounded. Integers are never tiny.
    if (!exact) {
        flags.raise(Flags::inexact);
        bool tiny = below_normal && !f.is_integer();
        if (tiny && leading == f.first_binade() - 1 && policy.tininess == Tininess::after_rounding && f.has_zero) {
            bool unused = true;
            const int full = 63 - f.fraction_bits;
            const auto lower = static_cast<std::uint64_t>(base - implicit) & 1; // flip in the binade below
            const auto whole = detail::round_significand(significand, full, sign, policy, random, unused, lower);
            tiny = whole >> f.precision() == 0;
        }
        if (tiny) flags.raise(Flags::underflow);
    }
    if (policy.flushes_output() && code < static_cast<std::int64_t>(f.min_normal_code())) {
        if (code != 0) flags.raise(Flags::inexact | Flags::underflow);
        code = 0;
    }
    if (code == 0) return detail::pack_zero(f, sign, policy);
    return f.with_sign(static_cast<std::uint32_t>(code), sign);
}

/// Rounds an unpacked number to `f`.
constexpr std::uint32_t pack(const FormatSpec& f, const Unpacked& u, const Policy& policy, std::uint32_t random,
                             Flags& flags) {
    switch (u.kind) {
    case Kind::nan: return detail::pack_nan(f, u, policy.nan, flags);
    case Kind::infinity: return detail::pack_infinity(f, u.sign, policy, flags);
    case Kind::zero: return detail::pack_zero(f, u.sign, policy);
    case Kind::finite: break;
    }
    if (u.subnormal && policy.flushes_input()) return detail::pack_zero(f, u.sign, policy);
    return round_pack(f, u.sign, u.exponent, u.significand, policy, random, flags);
}

/// The code of `x` in `f`, in one rounding from float or double.
template <std::floating_point T>
constexpr std::uint32_t encode(const FormatSpec& f, T x, const Policy& policy, std::uint32_t random, Flags& flags) {
    return pack(f, unpack(x), policy, random, flags);
}
template <std::floating_point T>
constexpr std::uint32_t encode(const FormatSpec& f, T x, const Policy& policy = {}, std::uint32_t random = 0) {
    Flags flags;
    return encode(f, x, policy, random, flags);
}

/// The code `code` of format `from` in format `to`, in one rounding.
constexpr std::uint32_t convert(const FormatSpec& from, std::uint32_t code, const FormatSpec& to, const Policy& policy,
                                std::uint32_t random, Flags& flags) {
    return pack(to, unpack(from, code), policy, random, flags);
}

/// The value of a code, exactly. NaN becomes 0x7fc00000 unless the rule says otherwise.
constexpr float decode(const FormatSpec& f, std::uint32_t code, NanRule nan = NanRule::canonical) {
    Flags flags;
    return std::bit_cast<float>(convert(f, code, fp32_format(), {.nan = nan}, 0, flags));
}

/// `x` rounded to `f`, as a float.
template <std::floating_point T>
constexpr float quantize(const FormatSpec& f, T x, const Policy& policy = {}, std::uint32_t random = 0) {
    return decode(f, encode(f, x, policy, random), policy.nan);
}

/// The next code in the order of values; -0 and +0 count as one value. Infinity, the largest value and NaN stay.
constexpr std::uint32_t next_up(const FormatSpec& f, std::uint32_t code) {
    code &= f.code_mask();
    const std::uint32_t magnitude = f.magnitude_of(code);
    const std::uint32_t last = f.max_code() + std::uint32_t{f.has_infinity()};
    if (unpack(f, code).is_nan()) return code;
    if (f.is_negative(code) && magnitude > 0)
        return magnitude == 1 ? detail::pack_zero(f, true) : f.with_sign(magnitude - 1, true);
    return magnitude < last ? magnitude + 1 : code;
}
constexpr std::uint32_t next_down(const FormatSpec& f, std::uint32_t code) {
    code &= f.code_mask();
    const std::uint32_t magnitude = f.magnitude_of(code);
    const std::uint32_t last = f.max_code(true) + std::uint32_t{f.has_infinity()};
    if (unpack(f, code).is_nan()) return code;
    if (!f.is_signed) return magnitude == 0 ? code : code - 1;
    if (!f.is_negative(code) && magnitude > 0) return code - 1;
    return magnitude < last ? f.with_sign(magnitude + 1, true) : code;
}

} // namespace amp

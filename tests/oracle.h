// The oracle: the result that every conversion and operation must have, computed with exact integers of any size and by
// searching the list of a format's values. It shares no code with formats/: the facts below are copied from the
// standards, and policy.h provides only names of modes and flags, no functions.
#pragma once

#include <ampscope/formats/policy.h>

#include <boost/multiprecision/cpp_int.hpp>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string_view>
#include <vector>

namespace oracle {

using amp::Flags, amp::NanRule, amp::Overflow, amp::Policy, amp::Rounding, amp::Subnormals, amp::Tininess;
using Integer = boost::multiprecision::cpp_int;

/// A format as the text that defines it describes it.
struct Facts {
    std::string_view name;
    int sign_bits, exponent_bits, fraction_bits, bias;
    double max;                        // largest finite value
    std::uint32_t infinity;            // code of +infinity, 0: none
    std::uint32_t first_nan, last_nan; // positive codes that are NaN (FNUZ: the code of -0); first > last: none
    std::uint32_t nan;                 // the canonical NaN
    bool has_zero = true;
    // Integers have no exponent bits; of those in two's complement, `least` is the least that is stored.
    bool complement = false;
    int least = 0;

    bool is_integer() const { return exponent_bits == 0; }
    int bits() const { return sign_bits + exponent_bits + fraction_bits; }
    std::uint32_t sign_bit() const { return sign_bits == 0 ? 0 : std::uint32_t{1} << (exponent_bits + fraction_bits); }
    bool has_nan() const { return first_nan <= last_nan; }
    bool is_fnuz() const { return sign_bits != 0 && first_nan == sign_bit(); }
    /// Whether infinity and NaN have the exponent field for themselves, as IEEE 754 has it.
    bool has_payload() const { return infinity != 0 && fraction_bits > 0 && infinity % (1u << fraction_bits) == 0; }
};

inline const std::vector<Facts> facts = {
    {"fp32", 1, 8, 23, 127, 0x1.fffffep127, 0x7f800000, 0x7f800001, 0x7fffffff, 0x7fc00000},
    {"tf32", 1, 8, 10, 127, 0x1.ffcp127, 0x3fc00, 0x3fc01, 0x3ffff, 0x3fe00},
    {"fp16", 1, 5, 10, 15, 65504, 0x7c00, 0x7c01, 0x7fff, 0x7e00},
    {"bf16", 1, 8, 7, 127, 0x1.fep127, 0x7f80, 0x7f81, 0x7fff, 0x7fc0},
    {"e4m3", 1, 4, 3, 7, 448, 0, 0x7f, 0x7f, 0x7f},
    {"e5m2", 1, 5, 2, 15, 57344, 0x7c, 0x7d, 0x7f, 0x7e},
    {"e4m3fnuz", 1, 4, 3, 8, 240, 0, 0x80, 0x80, 0x80},
    {"e5m2fnuz", 1, 5, 2, 16, 57344, 0, 0x80, 0x80, 0x80},
    {"e4m3b11fnuz", 1, 4, 3, 11, 30, 0, 0x80, 0x80, 0x80},
    {"e3m2", 1, 3, 2, 3, 28, 0, 1, 0, 0},
    {"e2m3", 1, 2, 3, 1, 7.5, 0, 1, 0, 0},
    {"e2m1", 1, 2, 1, 1, 6, 0, 1, 0, 0},
    {"e8m0", 0, 8, 0, 127, 0x1p127, 0, 0xff, 0xff, 0xff, false},
    // IEEE-like formats by name: sizes that no other row has, among them the smallest and the widest.
    {"e4m3ieee", 1, 4, 3, 7, 240, 0x78, 0x79, 0x7f, 0x7c},
    {"e3m4", 1, 3, 4, 3, 15.5, 0x70, 0x71, 0x7f, 0x78},
    {"e2m1ieee", 1, 2, 1, 1, 3, 0x6, 0x7, 0x7, 0x7},
    {"e6m9", 1, 6, 9, 31, 0x1.ff8p31, 0x7e00, 0x7e01, 0x7fff, 0x7f00},
    {"e8m1", 1, 8, 1, 127, 0x1.8p127, 0x1fe, 0x1ff, 0x1ff, 0x1ff},
    // IEEE P3109 v4.0 section 4.7.2: with a sign or without, with infinities or without; of one significant bit; with
    // FP32's number of exponents.
    {"binary8p3se", 1, 5, 2, 16, 49152, 0x7f, 0x80, 0x80, 0x80},
    {"binary8p1se", 1, 7, 0, 64, 0x1p62, 0x7f, 0x80, 0x80, 0x80},
    {"binary8p3ue", 0, 6, 2, 32, 0x1.4p31, 0xfe, 0xff, 0xff, 0xff},
    {"binary6p4uf", 0, 3, 3, 4, 14, 0, 0x3f, 0x3f, 0x3f},
    {"binary16p8se", 1, 8, 7, 128, 0x1.fcp127, 0x7fff, 0x8000, 0x8000, 0x8000},
    // Integers: OCP MX 1.0 section 5.3.4 for MXINT8 and the unused code; CUDA's __nv_fp4_e0m3. The exponent field is 0,
    // so a unit is 2^(1 - bias - fraction bits).
    {"int8", 1, 0, 7, -6, 127, 0, 1, 0, 0, true, true, -128},
    {"int8sym", 1, 0, 7, -6, 127, 0, 1, 0, 0, true, true, -127},
    {"int4", 1, 0, 3, -2, 7, 0, 1, 0, 0, true, true, -8},
    {"int4sym", 1, 0, 3, -2, 7, 0, 1, 0, 0, true, true, -7},
    {"mxint8", 1, 0, 7, 0, 127.0 / 64, 0, 1, 0, 0, true, true, -128},
    {"e0m3", 1, 0, 3, -2, 7, 0, 1, 0, 0},
    {"e2m23", 1, 2, 23, 1, 0x1.fffffep1, 0x1800000, 0x1800001, 0x1ffffff, 0x1c00000},
};

inline const Facts& find(std::string_view name) {
    for (const Facts& f : facts)
        if (f.name == name) return f;
    throw std::invalid_argument("the oracle has no such format");
}

/// n * 2^exponent.
struct Dyadic {
    std::uint64_t n;
    int exponent;
};

enum class Class : std::uint8_t { zero, finite, infinity, nan };

/// An exact number: (-1)^negative * numerator / denominator * 2^exponent, or the square root of that if `root`.
struct Number {
    Class kind = Class::zero;
    bool negative = false;
    bool subnormal = false; // in the format that it was read from
    bool signaling = false;
    std::uint64_t payload = 0; // for NaN: its fraction bits, left-aligned
    Integer numerator = 0, denominator = 1;
    int exponent = 0;
    bool root = false;
};

/// The sign of |x| - d. Precondition: x is finite and not zero.
inline int compare(const Number& x, const Dyadic& d) {
    if (d.n == 0) return 1;
    const int shift = x.exponent - (x.root ? 2 : 1) * d.exponent;
    if (!x.root && x.denominator == 1 && x.numerator <= std::numeric_limits<std::uint64_t>::max()) { // nearly always
        const auto n = static_cast<std::uint64_t>(x.numerator);
        const int places = std::countl_zero(n), of_d = std::countl_zero(d.n);
        if (shift - places != -of_d) return shift - places < -of_d ? -1 : 1; // the first digits have other places
        const std::uint64_t left = n << places, right = d.n << of_d;
        return left < right ? -1 : left > right ? 1 : 0;
    }
    Integer left = x.numerator, right = x.denominator * d.n;
    if (x.root) right *= d.n;
    const int a = static_cast<int>(msb(left)) + shift, b = static_cast<int>(msb(right));
    if (a != b) return a < b ? -1 : 1;
    if (shift > 0) left <<= shift;
    if (shift < 0) right <<= -shift;
    return left.compare(right);
}

/// The k-th non-negative value in order, as if the exponent field had no end.
inline Dyadic magnitude(const Facts& f, std::uint64_t k) {
    const std::uint64_t implicit = std::uint64_t{1} << f.fraction_bits;
    const int field = static_cast<int>(k >> f.fraction_bits);
    if (field == 0 && f.has_zero) return {k, 1 - f.bias - f.fraction_bits};
    return {implicit + k % implicit, field - f.bias - f.fraction_bits};
}

/// The largest k whose value is at most |x|. Precondition: one exists.
inline std::uint64_t index_below(const Facts& f, const Number& x) {
    std::uint64_t low = 0, high = std::uint64_t{4096} << f.fraction_bits;
    while (high - low > 1) {
        const std::uint64_t middle = (low + high) / 2;
        (compare(x, magnitude(f, middle)) >= 0 ? low : high) = middle;
    }
    return low;
}

inline Number exactly(double value) {
    int exponent = 0;
    const double fraction = std::frexp(std::fabs(value), &exponent);
    return {.kind = value == 0 ? Class::zero : Class::finite,
            .negative = std::signbit(value),
            .numerator = static_cast<std::uint64_t>(std::ldexp(fraction, 53)),
            .exponent = exponent - 53};
}

inline std::uint64_t max_index(const Facts& f) { return index_below(f, exactly(f.max)); }

inline Number quiet_nan(bool negative = false) {
    return {.kind = Class::nan, .negative = negative, .payload = std::uint64_t{1} << 63};
}

/// The number that a code stands for.
inline Number read(const Facts& f, std::uint32_t code) {
    if (f.bits() < 32) code %= std::uint32_t{1} << f.bits();
    const bool negative = (code & f.sign_bit()) != 0;
    const std::uint32_t k = !negative ? code : f.complement ? 2 * f.sign_bit() - code : code - f.sign_bit();
    if (f.is_fnuz() && code == f.nan) return quiet_nan(true);
    if (!f.is_fnuz() && k >= f.first_nan && k <= f.last_nan) {
        if (!f.has_payload()) return quiet_nan(negative);
        const std::uint64_t payload = std::uint64_t{k} << (64 - f.fraction_bits);
        return {.kind = Class::nan, .negative = negative, .signaling = payload >> 63 == 0, .payload = payload};
    }
    if (f.infinity != 0 && k == f.infinity) return {.kind = Class::infinity, .negative = negative};
    const Dyadic value = magnitude(f, k);
    return {.kind = value.n == 0 ? Class::zero : Class::finite,
            .negative = negative,
            .subnormal = !f.is_integer() && f.has_zero && value.n != 0 && value.n >> f.fraction_bits == 0,
            .numerator = value.n,
            .exponent = value.exponent};
}

inline Number read(double value) {
    if (std::isinf(value)) return {.kind = Class::infinity, .negative = std::signbit(value)};
    if (std::isnan(value)) {
        const auto payload = std::bit_cast<std::uint64_t>(value) << 12;
        return {
            .kind = Class::nan, .negative = std::signbit(value), .signaling = payload >> 63 == 0, .payload = payload};
    }
    Number x = exactly(value);
    x.subnormal = std::fpclassify(value) == FP_SUBNORMAL;
    return x;
}
inline Number read(float value) { return read(find("fp32"), std::bit_cast<std::uint32_t>(value)); }

/// The value of a code as a float, computed by the C library; NaN is 0x7fc00000.
inline float to_float(const Facts& f, std::uint32_t code) {
    const Number x = read(f, code);
    if (x.kind == Class::nan) return std::bit_cast<float>(0x7fc00000);
    const double magnitude = x.kind == Class::infinity
                                 ? std::numeric_limits<double>::infinity()
                                 : std::ldexp(static_cast<double>(static_cast<std::uint64_t>(x.numerator)), x.exponent);
    return static_cast<float>(x.negative ? -magnitude : magnitude);
}

/// Whether a code is read, but never stored: the least integer of symmetric ones.
inline bool is_unused(const Facts& f, std::uint32_t code) {
    return f.complement && code == f.sign_bit() && f.least > -static_cast<int>(f.sign_bit());
}

struct Outcome {
    std::uint32_t code = 0;
    unsigned flags = 0;
    bool operator==(const Outcome&) const = default;
};

/// How a call rounds.
struct Context {
    const Facts& format;
    Policy policy{};
    std::uint32_t random = 0;

    bool flushes_input() const {
        return policy.subnormals == Subnormals::flush || policy.subnormals == Subnormals::flush_input;
    }
    bool flushes_output() const {
        return policy.subnormals == Subnormals::flush || policy.subnormals == Subnormals::flush_output;
    }
};

inline std::uint32_t with_sign(const Facts& f, std::uint32_t code, bool negative) {
    if (f.complement) return negative && code != 0 ? 2 * f.sign_bit() - code : code;
    return negative ? code | f.sign_bit() : code;
}

/// Whether the policy is one of IEEE P3109, which knows no -0, and NaN only for what is below a range without sign.
inline bool projects(const Policy& policy) {
    return policy.overflow == Overflow::sat_finite || policy.overflow == Overflow::sat_propagate ||
           policy.overflow == Overflow::sat_none;
}

/// Zero; a format without one stores its smallest value.
inline std::uint32_t store_zero(const Context& to, bool negative) {
    return with_sign(to.format, 0, negative && !to.format.is_fnuz() && !projects(to.policy));
}

inline Outcome store_max(const Facts& f, bool negative, unsigned flags) {
    const auto end =
        static_cast<std::uint32_t>(negative && f.complement ? -std::int64_t{f.least} : std::int64_t(max_index(f)));
    return {with_sign(f, end, negative), flags};
}

inline Outcome store_nan(const Context& to, const Number& x, unsigned flags) {
    const Facts& f = to.format;
    if (x.signaling) flags |= Flags::invalid;
    if (!f.has_nan()) return store_max(f, false, flags | Flags::invalid);
    const bool negative = x.negative && !f.is_fnuz();
    switch (to.policy.nan) {
    case NanRule::canonical: return {f.nan, flags};
    case NanRule::keep_sign: return {with_sign(f, f.nan, negative), flags};
    case NanRule::all_ones: return {f.last_nan, flags};
    case NanRule::all_ones_keep_sign: return {with_sign(f, f.last_nan, negative), flags};
    case NanRule::payload: break;
    }
    const std::uint32_t kept = f.has_payload() ? static_cast<std::uint32_t>(x.payload >> (64 - f.fraction_bits)) : 0;
    return {with_sign(f, f.nan | kept, negative), flags};
}

/// The NaN that replaces an infinity: it has the sign unless NaNs are canonical.
inline std::uint32_t nan_for_infinity(const Context& to, bool negative) {
    return with_sign(to.format, to.format.nan, negative && !to.format.is_fnuz() && to.policy.nan != NanRule::canonical);
}

/// Whether a number beyond the largest finite one rounds away from zero (IEEE 754 section 7.4). Rounding to odd takes
/// that of the two whose code is odd.
inline bool overflows_outwards(const Facts& f, Rounding rounding, bool negative) {
    switch (rounding) {
    case Rounding::nearest_even:
    case Rounding::nearest_away:
    case Rounding::stochastic: return true;
    case Rounding::down: return negative;
    case Rounding::up: return !negative;
    case Rounding::to_odd: return f.infinity % 2 != 0;
    case Rounding::toward_zero: break;
    }
    return false;
}

/// What is below the range of a format without sign (IEEE P3109 v4.0 section 4.7.5).
inline Outcome store_negative(const Context& to, bool infinite) {
    const bool inwards = to.policy.rounding == Rounding::toward_zero || to.policy.rounding == Rounding::up;
    if (!projects(to.policy) || (to.policy.overflow == Overflow::sat_none && (infinite || !inwards)))
        return {to.format.nan, Flags::invalid};
    return {0, Flags::overflow | Flags::inexact};
}

inline Outcome store_infinity(const Context& to, bool negative, unsigned flags) {
    const Facts& f = to.format;
    if (negative && f.sign_bits == 0) return store_negative(to, true);
    if (to.policy.overflow == Overflow::saturate_all || to.policy.overflow == Overflow::sat_finite)
        return store_max(f, negative, flags);
    if (f.infinity != 0) return {with_sign(f, f.infinity, negative), flags};
    flags |= Flags::invalid;
    if (!f.has_nan() || projects(to.policy)) return store_max(f, negative, flags);
    return {nan_for_infinity(to, negative), flags};
}

inline Outcome store_overflow(const Context& to, bool negative) {
    const Facts& f = to.format;
    const unsigned flags = Flags::overflow | Flags::inexact;
    const bool saturates = to.policy.overflow != Overflow::infinity && to.policy.overflow != Overflow::sat_none;
    if (saturates || !overflows_outwards(f, to.policy.rounding, negative)) return store_max(f, negative, flags);
    if (f.infinity != 0) return {with_sign(f, f.infinity, negative), flags};
    if (!f.has_nan() || projects(to.policy)) return store_max(f, negative, flags);
    return {nan_for_infinity(to, negative), flags};
}

/// Whether x, in [low, low + 1 unit of its last place), is rounded away from zero. `odd`: low's last bit.
inline bool rounds_up(const Context& to, const Number& x, const Dyadic& low, bool odd) {
    if (compare(x, low) == 0) return false;
    const int against_middle = compare(x, {2 * low.n + 1, low.exponent - 1});
    switch (to.policy.rounding) {
    case Rounding::nearest_even: return against_middle > 0 || (against_middle == 0 && odd);
    case Rounding::nearest_away: return against_middle >= 0;
    case Rounding::toward_zero: return false;
    case Rounding::down: return x.negative;
    case Rounding::up: return !x.negative;
    case Rounding::to_odd: return !odd;
    case Rounding::stochastic: break;
    }
    // f * 2^b becomes an integer above r iff it is at least r + 1 (variant a) or that less a half (b); in variant c,
    // equal to the latter only if r + 1 is even. And f = x - low in units of the last place.
    const int b = to.policy.random_bits;
    const std::uint64_t r = to.random % (std::uint64_t{1} << b);
    const std::uint64_t above = 2 * ((low.n << b) + r + 1) - (to.policy.variant == amp::StochasticVariant::a ? 0 : 1);
    const int against = compare(x, {above, low.exponent - b - 1});
    return to.policy.variant == amp::StochasticVariant::c && r % 2 == 0 ? against > 0 : against >= 0;
}

/// Whether x is tiny: below the smallest normal; with tininess after rounding, also when rounded to full precision.
inline bool is_tiny(const Context& to, const Number& x) {
    const Facts& f = to.format;
    if (f.is_integer()) return false;
    const Dyadic normal = magnitude(f, f.has_zero ? std::uint64_t{1} << f.fraction_bits : 0);
    if (compare(x, normal) >= 0) return false;
    if (to.policy.tininess == Tininess::before_rounding || !f.has_zero) return true;
    if (compare(x, {normal.n, normal.exponent - 1}) < 0) return true;
    // x is in the binade below the smallest normal: one more bit than the subnormals have.
    Dyadic low = magnitude(f, index_below(f, x));
    low = {2 * low.n, low.exponent - 1};
    if (compare(x, {low.n + 1, low.exponent}) >= 0) ++low.n;
    // Of one significant bit, the power of two there would have the code of zero, which is even.
    const bool odd = f.fraction_bits > 0 && low.n % 2 != 0;
    return low.n + std::uint64_t{rounds_up(to, x, low, odd)} < 2 * normal.n;
}

/// Stores any number in the format.
inline Outcome store(const Context& to, const Number& x, unsigned flags = 0) {
    const Facts& f = to.format;
    if (x.kind == Class::nan) return store_nan(to, x, flags);
    if (x.kind == Class::infinity) return store_infinity(to, x.negative, flags);
    if (x.kind == Class::zero) return {store_zero(to, x.negative), flags};
    if (x.negative && f.sign_bits == 0 && !projects(to.policy)) return store_negative(to, false);
    if (!f.has_zero && compare(x, magnitude(f, 0)) < 0) return {0, flags | Flags::inexact | Flags::underflow};

    const std::uint64_t below = index_below(f, x);
    const std::uint64_t k = below + std::uint64_t{rounds_up(to, x, magnitude(f, below), below % 2 != 0)};
    if (x.negative && f.sign_bits == 0 && k != 0) return store_negative(to, false);
    const std::uint64_t last = x.negative && f.complement ? static_cast<std::uint64_t>(-f.least) : max_index(f);
    if (k > last) return store_overflow(to, x.negative);
    if (compare(x, magnitude(f, below)) != 0)
        flags |= Flags::inexact | (is_tiny(to, x) ? unsigned{Flags::underflow} : 0u);
    if (k == 0 && f.has_zero) return {store_zero(to, x.negative), flags};
    if (to.flushes_output() && f.has_zero && !f.is_integer() && k >> f.fraction_bits == 0)
        return {store_zero(to, x.negative), flags | Flags::inexact | Flags::underflow};
    return {with_sign(f, static_cast<std::uint32_t>(k), x.negative), flags};
}

inline Number flushed(const Context& to, Number x) {
    return x.subnormal && to.flushes_input() ? Number{.negative = x.negative} : x;
}

/// Converts a number read from a code of another format, a float or a double.
inline Outcome convert(const Context& to, const Number& x) { return store(to, flushed(to, x)); }

} // namespace oracle

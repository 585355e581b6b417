// The number formats: one row each, every other fact derived.
//
// A FormatSpec is a plain value: it can be a function argument, a kernel argument or a template parameter. No code of
// the emulation names a particular format, so a new format is one new row here; what a format is for (the precisions
// of training, the columns of reports, the element types of files) are tables of their own.
#pragma once

#include <ampscope/formats/names.h>

#include <array>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#ifdef __FAST_MATH__
#error "ampscope is bit-exact: compile without -ffast-math"
#endif

namespace amp {

/// What the codes beyond the largest finite value mean.
enum class NonFinite : std::uint8_t {
    ieee,                 ///< all-ones exponent: fraction 0 is infinity, the rest NaN (IEEE 754-2019 section 3.4)
    nan_only,             ///< all ones is NaN, no infinity (OCP OFP8 1.0 for E4M3, OCP MX 1.0 for E8M0)
    nan_is_negative_zero, ///< the code of -0 is the only NaN, no infinity ("FNUZ": Noune et al. 2022, arXiv:2206.02915)
    none,                 ///< every code is a finite value (OCP MX 1.0 for FP6 and FP4)
    infinity_and_nan_is_negative_zero, ///< the largest magnitude is infinity, the code of -0 the only NaN (IEEE P3109
                                       ///< v4.0 section 4.7.2, signed and extended)
    infinity_below_nan, ///< all ones is NaN, the code below it infinity (the same, unsigned and extended)
};

/// How a code with its first bit set stands for a negative number.
enum class Negatives : std::uint8_t {
    sign_and_magnitude,        ///< the first bit is the sign (IEEE 754-2019 section 3.4; CUDA's e0m3)
    twos_complement,           ///< the code minus 2^bits, in units of the last place (OCP MX 1.0 section 5.3.4: INT8)
    twos_complement_symmetric, ///< the same; the least integer, whose negative has no code, is read but never stored
};

/// A binary number format of at most 32 bits. Every value of the formats that format() knows is also an FP32 value.
/// Without exponent bits, every number is an integer times the same power of two: such a format has no subnormals, but
/// all numbers are spaced as these are elsewhere.
struct FormatSpec {
    char name[16];
    int exponent_bits;
    int fraction_bits; ///< stored significand bits; precision() counts the implicit bit, too
    NonFinite nonfinite = NonFinite::ieee;
    int bias_offset = 0; ///< bias minus the IEEE bias 2^(exponent_bits-1) - 1
    bool is_signed = true;
    bool has_zero = true; ///< false: exponent field 0 is an ordinary binade and no subnormals exist (E8M0)
    Negatives negatives = Negatives::sign_and_magnitude; ///< the others only without exponent bits

    [[nodiscard]] constexpr int bits() const { return int{is_signed} + exponent_bits + fraction_bits; }
    [[nodiscard]] constexpr int precision() const { return fraction_bits + (is_integer() ? 0 : 1); }
    [[nodiscard]] constexpr int bias() const { return ((1 << exponent_bits) >> 1) - 1 + bias_offset; }
    /// Whether all numbers are integers times the same power of two.
    [[nodiscard]] constexpr bool is_integer() const { return exponent_bits == 0; }
    /// Exponent of the binade from which on significands have an implicit leading bit.
    [[nodiscard]] constexpr int first_binade() const { return (has_zero ? 1 : 0) - bias(); }
    /// Exponent of the smallest normal value: min_normal = 2^min_exponent().
    [[nodiscard]] constexpr int min_exponent() const {
        return is_integer() ? min_subnormal_exponent() : first_binade();
    }
    /// Exponent of the largest finite value.
    [[nodiscard]] constexpr int max_exponent() const { return static_cast<int>(max_code() >> fraction_bits) - bias(); }
    /// Exponent of the spacing of the subnormals, or of all integers, which is also the smallest positive value.
    [[nodiscard]] constexpr int min_subnormal_exponent() const { return first_binade() - fraction_bits; }

    [[nodiscard]] constexpr bool has_nan() const { return nonfinite != NonFinite::none; }
    /// Whether there are many NaNs, with a payload and a quiet bit. Formats with one NaN have a quiet one.
    [[nodiscard]] constexpr bool has_nan_payload() const { return nonfinite == NonFinite::ieee; }
    [[nodiscard]] constexpr bool nan_is_negative_zero() const {
        return nonfinite == NonFinite::nan_is_negative_zero ||
               nonfinite == NonFinite::infinity_and_nan_is_negative_zero;
    }
    [[nodiscard]] constexpr bool has_infinity() const {
        return nonfinite == NonFinite::ieee || nonfinite == NonFinite::infinity_and_nan_is_negative_zero ||
               nonfinite == NonFinite::infinity_below_nan;
    }
    [[nodiscard]] constexpr bool has_negative_zero() const {
        return is_signed && !nan_is_negative_zero() && negatives == Negatives::sign_and_magnitude;
    }
    /// Whether every value is an FP32 value, so that floats can hold them.
    [[nodiscard]] constexpr bool fits_fp32() const {
        return precision() <= 24 && min_subnormal_exponent() >= -149 && max_exponent() <= 127;
    }

    // Codes, as unsigned integers in the low bits(). A magnitude code is the code of the absolute value; that of the
    // least integer in two's complement is the code itself.
    [[nodiscard]] constexpr std::uint32_t magnitude_mask() const {
        return static_cast<std::uint32_t>((std::uint64_t{1} << (exponent_bits + fraction_bits)) - 1);
    }
    [[nodiscard]] constexpr std::uint32_t sign_mask() const { return is_signed ? magnitude_mask() + 1 : 0; }
    [[nodiscard]] constexpr std::uint32_t code_mask() const { return magnitude_mask() | sign_mask(); }
    [[nodiscard]] constexpr std::uint32_t fraction_mask() const { return (std::uint32_t{1} << fraction_bits) - 1; }
    /// Magnitude code of the largest finite value.
    [[nodiscard]] constexpr std::uint32_t max_code() const {
        switch (nonfinite) {
        case NonFinite::ieee: return magnitude_mask() - fraction_mask() - 1;
        case NonFinite::nan_only:
        case NonFinite::infinity_and_nan_is_negative_zero: return magnitude_mask() - 1;
        case NonFinite::infinity_below_nan: return magnitude_mask() - 2;
        case NonFinite::nan_is_negative_zero:
        case NonFinite::none: break;
        }
        return magnitude_mask();
    }
    /// Magnitude code of the largest finite value of that sign.
    [[nodiscard]] constexpr std::uint32_t max_code(bool negative) const {
        return max_code() + std::uint32_t{negative && negatives == Negatives::twos_complement};
    }
    /// Magnitude code from which on significands have an implicit leading bit.
    [[nodiscard]] constexpr std::uint32_t first_implicit_code() const {
        return has_zero ? std::uint32_t{1} << fraction_bits : 0;
    }
    /// Magnitude code of the smallest normal value.
    [[nodiscard]] constexpr std::uint32_t min_normal_code() const { return is_integer() ? 1 : first_implicit_code(); }
    [[nodiscard]] constexpr bool is_negative(std::uint32_t code) const { return (code & sign_mask()) != 0; }
    [[nodiscard]] constexpr std::uint32_t magnitude_of(std::uint32_t code) const {
        if (negatives == Negatives::sign_and_magnitude) return code & magnitude_mask();
        return (is_negative(code) ? 0 - code : code) & code_mask();
    }
    [[nodiscard]] constexpr std::uint32_t with_sign(std::uint32_t magnitude, bool negative) const {
        if (negatives == Negatives::sign_and_magnitude) return magnitude | (negative ? sign_mask() : 0);
        return (negative ? 0 - magnitude : magnitude) & code_mask();
    }
    /// Magnitude code of infinity. Precondition: has_infinity().
    [[nodiscard]] constexpr std::uint32_t infinity_code() const { return max_code() + 1; }
    /// The canonical NaN: positive, quiet, no payload (FP32: 0x7fc00000). Precondition: has_nan().
    [[nodiscard]] constexpr std::uint32_t nan_code() const {
        if (has_nan_payload()) return infinity_code() | (std::uint32_t{1} << (fraction_bits - 1));
        return nan_is_negative_zero() ? sign_mask() : magnitude_mask();
    }

    /// Scale formats (E8M0) can only be converted to and from; they take no part in arithmetic.
    [[nodiscard]] constexpr bool is_scale() const { return !has_zero; }

    constexpr bool operator==(const FormatSpec&) const = default;
};

namespace detail {

/// Integers of so many bits, the sign included, times 2^exponent.
constexpr FormatSpec integer_format(std::string_view name, int bits, int exponent, Negatives negatives) {
    FormatSpec spec{"", 0, bits - 1, NonFinite::none, 0, true, true, negatives};
    spec.bias_offset = spec.min_subnormal_exponent() - exponent;
    for (std::size_t i = 0; i < name.size(); ++i) spec.name[i] = name[i];
    return spec;
}

} // namespace detail

/// The table, which command lines, Python names, the README's table, tests and histograms iterate.
inline constexpr std::array formats = {
    FormatSpec{"fp32", 8, 23},                     // IEEE 754-2019 binary32
    FormatSpec{"tf32", 8, 10},                     // NVIDIA A100 whitepaper: FP32's range, FP16's precision
    FormatSpec{"fp16", 5, 10},                     // IEEE 754-2019 binary16
    FormatSpec{"bf16", 8, 7},                      // Intel 338302-001: the upper half of FP32
    FormatSpec{"e4m3", 4, 3, NonFinite::nan_only}, // OCP OFP8 1.0, Micikevicius et al. arXiv:2209.05433
    FormatSpec{"e5m2", 5, 2},                      // OCP OFP8 1.0
    FormatSpec{"e4m3fnuz", 4, 3, NonFinite::nan_is_negative_zero, 1},    // Noune et al. arXiv:2206.02915; AMD MI300
    FormatSpec{"e5m2fnuz", 5, 2, NonFinite::nan_is_negative_zero, 1},    // the same
    FormatSpec{"e4m3b11fnuz", 4, 3, NonFinite::nan_is_negative_zero, 4}, // bias 11 (Sun et al. 2019; ml_dtypes)
    FormatSpec{"e3m2", 3, 2, NonFinite::none},                           // OCP MX 1.0 FP6
    FormatSpec{"e2m3", 2, 3, NonFinite::none},                           // OCP MX 1.0 FP6
    FormatSpec{"e2m1", 2, 1, NonFinite::none},                           // OCP MX 1.0 FP4
    FormatSpec{"e8m0", 8, 0, NonFinite::nan_only, 0, false, false},      // OCP MX 1.0 shared scale
    detail::integer_format("int8", 8, 0, Negatives::twos_complement),
    detail::integer_format("int4", 4, 0, Negatives::twos_complement),
    detail::integer_format("mxint8", 8, -6, Negatives::twos_complement), // OCP MX 1.0 section 5.3.4
    detail::integer_format("e0m3", 4, 0, Negatives::sign_and_magnitude), // CUDA's __nv_fp4_e0m3
};

/// What others call a format.
struct FormatAlias {
    std::string_view name, format;
};

/// The names of element types in torch, NumPy and ml_dtypes. ml_dtypes' float8_e4m3 and float8_e3m4 are IEEE-like and
/// have infinities; e4m3 of OCP is float8_e4m3fn.
inline constexpr std::array format_aliases = {
    FormatAlias{"float32", "fp32"},
    FormatAlias{"float16", "fp16"},
    FormatAlias{"half", "fp16"},
    FormatAlias{"bfloat16", "bf16"},
    FormatAlias{"float8_e4m3fn", "e4m3"},
    FormatAlias{"e4m3fn", "e4m3"},
    FormatAlias{"float8_e5m2", "e5m2"},
    FormatAlias{"float8_e4m3fnuz", "e4m3fnuz"},
    FormatAlias{"float8_e5m2fnuz", "e5m2fnuz"},
    FormatAlias{"float8_e4m3b11fnuz", "e4m3b11fnuz"},
    FormatAlias{"float8_e8m0fnu", "e8m0"},
    FormatAlias{"float8_e4m3", "e4m3ieee"},
    FormatAlias{"float8_e3m4", "e3m4"},
    FormatAlias{"float6_e3m2fn", "e3m2"},
    FormatAlias{"float6_e2m3fn", "e2m3"},
    FormatAlias{"float4_e2m1fn", "e2m1"},
    FormatAlias{"float4_e2m1fn_x2", "e2m1"}, // two numbers a byte
};

namespace detail {

/// The name that this project has for a format that others call so; any other name as it is.
constexpr std::string_view own_name(std::string_view name) {
    for (const FormatAlias& alias : format_aliases)
        if (equal_ignoring_case(name, alias.name)) return alias.format;
    return name;
}

constexpr const FormatSpec* find_format(std::string_view name) {
    const std::string_view own = own_name(name);
    for (const FormatSpec& f : formats)
        if (equal_ignoring_case(own, f.name)) return &f;
    return nullptr;
}

/// A row in two's complement without its least integer: "int8sym" holds -127 to 127. Nothing for other names.
constexpr std::optional<FormatSpec> symmetric_format(std::string_view name) {
    constexpr std::string_view suffix = "sym";
    if (name.size() <= suffix.size() || !equal_ignoring_case(name.substr(name.size() - suffix.size()), suffix))
        return {};
    const FormatSpec* row = find_format(name.substr(0, name.size() - suffix.size()));
    if (row == nullptr || row->negatives != Negatives::twos_complement) return {};
    FormatSpec spec = *row;
    spec.negatives = Negatives::twos_complement_symmetric;
    for (std::size_t i = 0; i < name.size(); ++i) spec.name[i] = lower_case(name[i]);
    return spec;
}

/// Reads a decimal number without leading zeros at the front of `text` and removes it; -1 if there is none.
constexpr int take_number(std::string_view& text) {
    int value = 0;
    std::size_t n = 0;
    for (; n < text.size() && n < 3 && text[n] >= '0' && text[n] <= '9'; ++n) value = value * 10 + (text[n] - '0');
    if (n == 0 || text[0] == '0') return -1;
    text.remove_prefix(n);
    return value;
}

/// The rest of `text` behind `prefix`, in upper or lower case; nothing if it does not begin so.
constexpr bool take_prefix(std::string_view& text, std::string_view prefix) {
    if (text.size() < prefix.size() || !equal_ignoring_case(text.substr(0, prefix.size()), prefix)) return false;
    text.remove_prefix(prefix.size());
    return true;
}

constexpr FormatSpec named(FormatSpec spec, std::string_view name) {
    for (std::size_t i = 0; i < name.size(); ++i) spec.name[i] = lower_case(name[i]);
    return spec;
}

/// "eXmY" and "eXmYieee", IEEE-like; nothing for names of another form.
constexpr std::optional<FormatSpec> ieee_like_format(std::string_view name) {
    std::string_view rest = name;
    const int x = take_prefix(rest, "e") ? take_number(rest) : -1;
    const int y = take_prefix(rest, "m") ? take_number(rest) : -1;
    if (x < 0 || y < 0 || !(rest.empty() || equal_ignoring_case(rest, "ieee"))) return {};
    if (x < 2 || x > 8 || y < 1 || y > 23)
        throw std::invalid_argument("format '" + std::string(name) +
                                    "' is out of range: eXmY takes 2 <= X <= 8 and 1 <= Y <= 23");
    return named({"", x, y}, name); // at most "e8m23ieee"
}

/// Binary{K, P, signedness, domain} of IEEE P3109 v4.0 sections 3.1 and 3.2 by its short name, "binary8p3se" and the
/// like, or without the two letters, which then are "se"; nothing for names of another form.
constexpr std::optional<FormatSpec> p3109_format(std::string_view name) {
    std::string_view rest = name;
    const int k = take_prefix(rest, "binary") ? take_number(rest) : -1;
    const int p = take_prefix(rest, "p") ? take_number(rest) : -1;
    const std::string_view letters = rest.empty() ? "se" : rest;
    const bool is_signed = lower_case(letters[0]) == 's', extended = lower_case(letters.back()) == 'e';
    if (k < 0 || p < 0 || letters.size() != 2 || !(is_signed || lower_case(letters[0]) == 'u') ||
        !(extended || lower_case(letters[1]) == 'f'))
        return {};
    if (k < 3 || k > 16 || p < 1 || p > k - int{is_signed})
        throw std::invalid_argument("format '" + std::string(name) +
                                    "' is out of range: binaryKpP takes 3 <= K <= 16 " +
                                    "and 1 <= P < K if it is signed, P <= K if not");
    const NonFinite last[2][2] = {{NonFinite::nan_only, NonFinite::infinity_below_nan},
                                  {NonFinite::nan_is_negative_zero, NonFinite::infinity_and_nan_is_negative_zero}};
    // The bias, 2^(K-P-1) or unsigned 2^(K-P), is one more than that of IEEE 754 for as many bits of exponent.
    const FormatSpec spec{"", k - p + int{!is_signed}, p - 1, last[int{is_signed}][int{extended}], 1, is_signed};
    return named(spec, std::string(name) + (rest.empty() ? "se" : ""));
}

} // namespace detail

/// The format of that name, in upper or lower case: a row of the table, an alias, an IEEE-like format built from
/// "eXmY" with 2 <= X <= 8 and 1 <= Y <= 23, one of IEEE P3109 ("binary8p3se"), or "int8sym". Names of the table come
/// first ("e4m3" is OCP's); the IEEE-like format with the same fields is "e4m3ieee". Some formats of P3109 have values
/// beyond those of floats: unpack() and pack() know them, decode() does not. Throws std::invalid_argument for any
/// other name.
constexpr FormatSpec format_of_codes(std::string_view name) {
    if (const FormatSpec* row = detail::find_format(name)) return *row;
    if (const auto ieee = detail::ieee_like_format(detail::own_name(name))) return *ieee;
    if (const auto p3109 = detail::p3109_format(name)) return *p3109;
    if (const auto symmetric = detail::symmetric_format(name)) return *symmetric;
    throw_unknown("format", name,
                  names_of_rows(formats) +
                      ", or eXmY, such as e6m9, or binaryKpP of IEEE P3109, such as binary8p3se, or int8sym, "
                      "int4sym, mxint8sym");
}

/// The same, of the formats whose values floats can hold. Throws std::invalid_argument for the others, too.
constexpr FormatSpec format(std::string_view name) {
    const FormatSpec spec = format_of_codes(name);
    if (spec.fits_fp32()) return spec;
    throw std::invalid_argument("format '" + std::string(name) +
                                "' has values beyond those of FP32, which hold all numbers here; amp-format prints it");
}

/// A function, since devices can neither take the address of a constant nor look up names; bits.h says why. Not
/// consteval, which clang 14 gets wrong.
constexpr FormatSpec fp32_format() {
    constexpr FormatSpec fp32 = format("fp32");
    return fp32;
}

} // namespace amp

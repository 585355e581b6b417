// The number formats: one row each, every other fact derived.
//
// A FormatSpec is a plain value: it can be a function argument, a kernel argument or a template parameter. No code of
// the emulation names a particular format, so a new format is one new row here; what a format is for (the precisions
// of training, the columns of reports, the element types of files) are tables of their own.
#pragma once

#include <ampscope/formats/names.h>

#include <array>
#include <cstdint>
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
};

/// A binary number format of at most 32 bits whose every value is also an FP32 value.
struct FormatSpec {
    char name[12];
    int exponent_bits;
    int fraction_bits; ///< stored significand bits; precision() counts the implicit bit, too
    NonFinite nonfinite = NonFinite::ieee;
    int bias_offset = 0; ///< bias minus the IEEE bias 2^(exponent_bits-1) - 1
    bool is_signed = true;
    bool has_zero = true; ///< false: exponent field 0 is an ordinary binade and no subnormals exist (E8M0)

    [[nodiscard]] constexpr int bits() const { return int{is_signed} + exponent_bits + fraction_bits; }
    [[nodiscard]] constexpr int precision() const { return fraction_bits + 1; }
    [[nodiscard]] constexpr int bias() const { return (1 << (exponent_bits - 1)) - 1 + bias_offset; }
    /// Exponent of the smallest normal value: min_normal = 2^min_exponent().
    [[nodiscard]] constexpr int min_exponent() const { return (has_zero ? 1 : 0) - bias(); }
    /// Exponent of the largest finite value.
    [[nodiscard]] constexpr int max_exponent() const { return static_cast<int>(max_code() >> fraction_bits) - bias(); }
    /// Exponent of the spacing of the subnormals, which is also the smallest positive value.
    [[nodiscard]] constexpr int min_subnormal_exponent() const { return min_exponent() - fraction_bits; }

    [[nodiscard]] constexpr bool has_infinity() const { return nonfinite == NonFinite::ieee; }
    [[nodiscard]] constexpr bool has_nan() const { return nonfinite != NonFinite::none; }
    [[nodiscard]] constexpr bool has_negative_zero() const {
        return is_signed && nonfinite != NonFinite::nan_is_negative_zero;
    }

    // Codes, as unsigned integers in the low bits(). A magnitude code is a code without its sign bit.
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
        case NonFinite::nan_only: return magnitude_mask() - 1;
        case NonFinite::nan_is_negative_zero:
        case NonFinite::none: break;
        }
        return magnitude_mask();
    }
    /// Magnitude code of the smallest normal value.
    [[nodiscard]] constexpr std::uint32_t min_normal_code() const {
        return has_zero ? std::uint32_t{1} << fraction_bits : 0;
    }
    /// Magnitude code of infinity. Precondition: has_infinity().
    [[nodiscard]] constexpr std::uint32_t infinity_code() const { return max_code() + 1; }
    /// The canonical NaN: positive, quiet, no payload (FP32: 0x7fc00000). Precondition: has_nan().
    [[nodiscard]] constexpr std::uint32_t nan_code() const {
        if (nonfinite == NonFinite::ieee) return infinity_code() | (std::uint32_t{1} << (fraction_bits - 1));
        return nonfinite == NonFinite::nan_only ? magnitude_mask() : sign_mask();
    }

    /// Scale formats (E8M0) can only be converted to and from; they take no part in arithmetic.
    [[nodiscard]] constexpr bool is_scale() const { return !has_zero; }

    constexpr bool operator==(const FormatSpec&) const = default;
};

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
    for (const FormatSpec& f : formats)
        if (equal_ignoring_case(own_name(name), f.name)) return &f;
    return nullptr;
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

} // namespace detail

/// The format of that name, in upper or lower case: a row of the table, an alias, or an IEEE-like format built from
/// "eXmY" with 2 <= X <= 8 and 1 <= Y <= 23. Names of the table come first ("e4m3" is OCP's); the IEEE-like format with
/// the same fields is "e4m3ieee". Throws std::invalid_argument for any other name.
constexpr FormatSpec format(std::string_view name) {
    if (const FormatSpec* row = detail::find_format(name)) return *row;
    const std::string_view own = detail::own_name(name);
    std::string_view rest = own;
    if (rest.size() > 4 && equal_ignoring_case(rest.substr(rest.size() - 4), "ieee")) rest.remove_suffix(4);
    const auto take = [&rest](char letter) {
        if (rest.empty() || lower_case(rest[0]) != letter) return -1;
        rest.remove_prefix(1);
        return detail::take_number(rest);
    };
    const int x = take('e');
    const int y = take('m');
    if (x < 0 || y < 0 || !rest.empty())
        throw_unknown("format", name, names_of_rows(formats) + ", or eXmY, such as e6m9");
    if (x < 2 || x > 8 || y < 1 || y > 23)
        throw std::invalid_argument("format '" + std::string(name) +
                                    "' is out of range: eXmY takes 2 <= X <= 8 and 1 <= Y <= 23");
    FormatSpec spec{"", x, y};
    for (std::size_t i = 0; i < own.size(); ++i) spec.name[i] = lower_case(own[i]); // at most "e8m23ieee"
    return spec;
}

} // namespace amp

// What a number format can represent, and what formats make of one number.
#pragma once

#include <ampscope/formats/codec.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace amp {

/// Facts that follow from a format's row; FormatSpec has the others. Thresholds are for rounding to nearest even.
struct FormatFacts {
    FormatSpec format;
    double max = 0, min_normal = 0;
    double min_positive = 0;              ///< the smallest value above zero
    double epsilon = 0;                   ///< the distance from 1 to the next value
    double first_overflow = 0;            ///< halfway from max to the next value that there would be
    bool tie_overflows = false;           ///< whether that magnitude itself overflows; all above it do
    std::optional<double> last_to_zero{}; ///< the largest magnitude that becomes zero; none: there is no zero
    /// Ranges of the codes of NaN: first and last, the positive ones before the negative ones.
    std::vector<std::pair<std::uint32_t, std::uint32_t>> nan_codes{};
    int binades = 0;             ///< powers of two from the smallest positive value to max
    double dynamic_range_db = 0; ///< 20 log10(max / min_positive)
};

FormatFacts format_facts(const FormatSpec& format);

/// What a format makes of a number.
struct NumberInFormat {
    FormatSpec format;
    std::uint32_t code = 0;
    double value = 0;
    Flags flags{}; ///< the IEEE 754 exceptions that rounding raised
    /// value - number; none for 0, if either is not finite, and where it is too small for a double.
    std::optional<double> error{};
    std::optional<double> relative_error{}; ///< error / |number|
    std::optional<Kind> in_place_of{};      ///< NaN or infinity, which the format lacks
    /// Codes of the neighbours below and above; none for NaN.
    std::optional<std::pair<std::uint32_t, std::uint32_t>> neighbours{};

    [[nodiscard]] bool is_exact() const { return flags.bits == 0; }
    /// The names of its flags: inexact, underflow, overflow, divide_by_zero, invalid.
    [[nodiscard]] std::vector<std::string_view> flag_names() const;
    /// "NaN" or "infinity", if the format lacks what the number is.
    [[nodiscard]] std::optional<std::string_view> lacking() const;
};

/// A number given as text: decimal or hexadecimal floating point of any length, inf, nan. It is exact up to 63 bits and
/// a sticky bit, so that each format rounds it only once. Throws std::invalid_argument for any other text.
Unpacked parse_number(const std::string& text);

/// The number, given as text, in each of the formats. Throws as parse_number().
std::vector<NumberInFormat> store_number(const std::string& text, const std::vector<FormatSpec>& wanted,
                                         const Policy& policy = {});

} // namespace amp

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
    std::string_view kind; ///< "float", "integer", or "scale": without 0, for conversion alone
    double max = 0, min_normal = 0;
    double min_positive = 0;              ///< the smallest value above zero
    double epsilon = 0;                   ///< the distance from 1 to the next value, of integers from any
    double first_overflow = 0;            ///< halfway from max to the next value that there would be
    bool tie_overflows = false;           ///< whether that magnitude itself overflows; all above it do
    std::optional<double> last_to_zero{}; ///< the largest magnitude that becomes zero; none: there is no zero
    /// Ranges of the codes of NaN: first and last, the positive ones before the negative ones.
    std::vector<std::pair<std::uint32_t, std::uint32_t>> nan_codes{};
    int binades = 0;             ///< powers of two from the smallest positive value to max
    double dynamic_range_db = 0; ///< 20 log10(max / min_positive)
};

FormatFacts format_facts(const FormatSpec& format);

/// The value of a zero or finite number as a double; not exact beyond the range of doubles.
double to_double(const Unpacked& x);
/// A number in hexadecimal floating point, exactly: "0x1.8p-7".
std::string hexfloat(const Unpacked& x);
/// The shortest decimal that is the number as a double, or where no double is exactly that, hexadecimal floating point.
std::string number_text(const Unpacked& x);
/// Whether a double is exactly the number.
bool is_double(const Unpacked& x);

/// What a format makes of a number.
struct NumberInFormat {
    FormatSpec format;
    std::uint32_t code = 0;
    double value = 0;
    Flags flags{}; ///< the IEEE 754 exceptions that rounding raised
    /// value - number; none if either is not finite, and where a double would not have ten bits of it right.
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

/// What stochastic rounding makes of a number that lies between two of a format.
struct StochasticChoice {
    FormatSpec format;
    std::uint32_t down = 0, up = 0; ///< the codes; `up` may be what an overflow stores
    std::uint64_t words_up = 0;     ///< how many of the 2^random_bits words round away from zero
    double probability = 0;         ///< how likely that is
    double fraction = 0;            ///< what it would have to be: the discarded part in units of the last place
    /// By how many units of the last place the magnitude of the result is too large on average.
    [[nodiscard]] double bias() const { return probability - fraction; }
};

/// The number, given as text, in those of the formats in which it lies between two values. Throws as parse_number().
std::vector<StochasticChoice> stochastic_choices(const std::string& text, const std::vector<FormatSpec>& wanted,
                                                 Policy policy);

} // namespace amp

// Gates on the comparison of two recordings: conditions that make amp-diff exit with status 3.
//
//   FIGURE < LIMIT      or <=
//
// FIGURE: differ, norm and max-relative (LIMIT: a number, or a percentage); max-ulps, nan, inf, sign, zero and missing
// (LIMIT: a number).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace amp {

/// A limit on one figure of the whole comparison.
struct DiffGate {
    enum class Figure : std::uint8_t {
        differ,       ///< share of elements that differ
        max_ulps,     ///< largest distance in ulps; infinite if only one of a pair is NaN or infinite
        max_relative, ///< largest |a - b| / max(|a|, |b|); infinite if only one of a pair is NaN or infinite
        norm,         ///< |a - b| / |a| over all elements; infinite if only one of a pair is NaN or infinite
        nan,          ///< number of elements that are NaN in only one recording
        inf,          ///< number of elements infinite in only one recording, or in both with opposite signs
        sign,         ///< number of non-zero elements with opposite signs
        zero,         ///< number of elements that are zero in only one recording, or in both with opposite signs
        missing       ///< number of tensors that only one recording has
    };
    std::string text; ///< the gate in the user's words
    Figure figure = Figure::differ;
    bool or_equal = false;
    double limit = 0;
};
inline constexpr std::array<std::string_view, 9> diff_gate_names = {
    "differ", "max-ulps", "max-relative", "norm", "nan", "inf", "sign", "zero", "missing"};

std::string_view name_of(DiffGate::Figure figure);

/// Throws std::invalid_argument with a message that quotes the text and says what was expected.
DiffGate parse_diff_gate(const std::string& text);

} // namespace amp

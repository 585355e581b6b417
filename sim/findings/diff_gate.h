// Gates on a comparison of two recordings: conditions that make amp-diff exit with 3.
//
//   FIGURE < LIMIT      or <=
//
// FIGURE: differ, norm and max-relative (LIMIT: a number, or a percentage); max-ulps, nan, inf, sign, zero and missing
// (LIMIT: a number).
#pragma once

#include <ampscope/sim/findings/diff.h>

#include <array>

namespace amp {

/// A limit on one figure of the whole comparison.
struct DiffGate {
    enum class Figure : std::uint8_t {
        differ,       ///< the share of elements that differ
        max_ulps,     ///< the largest distance in units in the last place; infinite where one is NaN or infinite alone
        max_relative, ///< the largest |a - b| / max(|a|, |b|); likewise
        norm,         ///< |a - b| / |a| of all elements; likewise
        nan,          ///< elements that are NaN in one alone
        inf,          ///< elements that are infinite in one alone, or in both with opposite signs
        sign,         ///< non-zero elements of opposite signs
        zero,         ///< elements that are zero in one alone, or in both with opposite signs
        missing       ///< tensors that are in one alone
    };
    std::string text; ///< as the user wrote it
    Figure figure = Figure::differ;
    bool or_equal = false;
    double limit = 0;
};
inline constexpr std::array<std::string_view, 9> diff_gate_names = {
    "differ", "max-ulps", "max-relative", "norm", "nan", "inf", "sign", "zero", "missing"};

/// Throws std::invalid_argument that quotes the text and says what was expected.
DiffGate parse_diff_gate(const std::string& text);

struct DiffGateResult {
    DiffGate gate;
    double value = 0; ///< of its figure
    bool holds = false;
};

/// What becomes of each gate. Where nothing could be compared none holds.
std::vector<DiffGateResult> judge(const DiffFindings& findings, const std::vector<DiffGate>& gates);

} // namespace amp

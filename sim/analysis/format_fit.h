// How a format holds tensors that no loss scale multiplies: weights, activations and the optimizer's state. Such a
// tensor is cast as it is or, to narrow formats, under a scale of its own, which is divided out after the product.
#pragma once

#include <ampscope/sim/analysis/histogram.h>

#include <utility>

namespace amp {

/// Counts over one or several tensors. A tensor's own scale is the largest power of two at which none of its elements
/// overflows, so that it follows from the largest magnitude. A cast holds a tensor if no element overflows and
/// underflow / nonzero stays below a limit. Infinities and NaN do not count.
struct FormatFit {
    std::uint64_t tensors = 0;     ///< tensors with an element that is finite and not zero
    std::uint64_t overflowing = 0; ///< tensors with elements that overflow without a scale
    std::uint64_t held = 0;        ///< the ones that a cast without a scale holds
    std::uint64_t held_scaled = 0; ///< the ones that a cast under their own scales holds: the others need a scale for
                                   ///< each block of elements, or a format of larger range
    ClassCounts unscaled{}, scaled{};  ///< elements, without a scale and under the tensors' own scales
    std::pair<int, int> log2_scales{}; ///< log2 of the smallest and the largest of these scales

    void merge(const FormatFit& other);
    bool operator==(const FormatFit&) const = default;
};

/// The fit of one tensor, rounded as the rule says (see classify()). All is 0 without any finite non-zero element.
FormatFit fit_of(const MagnitudeHistogram& all, const FineHistogram& fine, const FormatSpec& format,
                 const CastRule& rule, double limit);

} // namespace amp

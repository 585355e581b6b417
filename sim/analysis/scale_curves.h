// What each loss scale does to gradients: of several formats the recommended scale, and the shares of elements that
// underflow and overflow over a range of scales.
#pragma once

#include <ampscope/sim/analysis/histogram.h>

#include <span>
#include <vector>

namespace amp {

/// The scales that curves run over, in log2: from `below` under the least scale of interest, but at least `least`, to
/// `above` over the greatest, but at most `most`. Of interest are 1 and, for each format, the ends of its window, or
/// the scales that leave none; not those of formats of FP32's range that need no scale, which lie far beyond all
/// others.
struct ScaleRange {
    int below = 8, above = 8;
    int least = -140, most = 140;
};

/// What loss scales do in one format.
struct ScaleCurve {
    FormatSpec format;
    ClassCounts unscaled;                    ///< counts at scale 1
    Recommendation recommendation;           ///< the scale to use
    std::vector<double> underflow, overflow; ///< shares of the finite non-zero elements, by scale
};

/// What the loss scales 2^first_log2, 2^(first_log2 + 1), ... do: as many as each curve has values, at least up to 2^8.
struct ScaleCurves {
    CastRule rule; ///< how the casts round
    int first_log2 = 0;
    std::vector<ScaleCurve> curves; ///< one for each format, of equal length
};

/// The curves of each of the wanted formats. Counts are those of classify(), so under stochastic rounding they are the
/// worst that random bits can do. Without any finite non-zero element all shares are 0. `censoring`: what the record
/// hides; the shares are of what was recorded.
ScaleCurves scale_curves(const MagnitudeHistogram& all, const FineHistogram& fine, std::span<const FormatSpec> wanted,
                         const CastRule& rule, const RecommendationOptions& options = {}, const ScaleRange& range = {},
                         const Censoring& censoring = {});

} // namespace amp

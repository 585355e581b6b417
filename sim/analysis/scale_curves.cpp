#include <ampscope/sim/analysis/scale_curves.h>

#include <algorithm>
#include <utility>

namespace amp {

namespace {

/// log2 of the first and the last scale.
std::pair<int, int> ends_of(const std::vector<ScaleCurve>& curves, const ScaleRange& range) {
    int low = 0, high = 0;
    for (const ScaleCurve& curve : curves) {
        const Recommendation& advice = curve.recommendation;
        const bool wide = curve.format.exponent_bits >= fp32_format().exponent_bits;
        if (wide && advice.window && advice.log2_scale == 0) continue;
        low = std::min({low, advice.lowest_enough, advice.highest_safe});
        high = std::max({high, advice.lowest_enough, advice.highest_safe});
    }
    return {std::max(low - range.below, range.least), std::min(std::max(8, high + range.above), range.most)};
}

} // namespace

ScaleCurves scale_curves(const MagnitudeHistogram& all, const FineHistogram& fine, std::span<const FormatSpec> wanted,
                         const CastRule& rule, const RecommendationOptions& options, const ScaleRange& range,
                         const Censoring& censoring) {
    ScaleCurves result{.rule = rule, .curves = {}};
    for (const FormatSpec& format : wanted)
        result.curves.push_back({.format = format,
                                 .unscaled = classify(all, fine, format, 0, rule),
                                 .recommendation = recommend(all, fine, format, rule, options, censoring),
                                 .underflow = {},
                                 .overflow = {}});
    const auto [low, high] = ends_of(result.curves, range);
    result.first_log2 = low;
    const auto nonzero = static_cast<double>(std::max<std::uint64_t>(all.nonzero(), 1));
    for (ScaleCurve& curve : result.curves)
        for (int k = low; k <= high; ++k) {
            const ClassCounts counts = classify(all, fine, curve.format, k, rule);
            curve.underflow.push_back(static_cast<double>(counts.underflow) / nonzero);
            curve.overflow.push_back(static_cast<double>(counts.overflow) / nonzero);
        }
    return result;
}

} // namespace amp

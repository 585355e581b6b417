#include <ampscope/sim/base/text.h>
#include <ampscope/tools/amp-histogram/recipe.h>
#include <ampscope/tools/amp-histogram/report.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace amp::histogram_tool {

namespace {

/// The scales to draw: from where nothing of the widest data survives at either end, within reason.
std::pair<int, int> scale_range(const KindFindings& kind, const HistogramOptions& options) {
    int low = 0, high = 0;
    for (std::size_t i = 0; i < options.formats.size(); ++i) {
        const Recommendation& advice = kind.formats[i].recommendation;
        if (options.formats[i].exponent_bits >= 8 && advice.window && advice.log2_scale == 0)
            continue; // wide formats would stretch the picture
        low = std::min({low, advice.lowest_enough, advice.highest_safe});
        high = std::max({high, advice.lowest_enough, advice.highest_safe});
    }
    return {std::max(low - 8, -140), std::min(high + 8, 140)};
}

} // namespace

MagnitudeFigure magnitude_figure(const KindFindings& kind, const HistogramOptions& options) {
    const MagnitudeHistogram& histogram = kind.total.magnitudes.histogram;
    MagnitudeFigure figure{"Magnitudes of " + plural(kind.total.tensors, "tensor") +
                               (kind.total.is_gradient() ? "" : fmt::format(" of {}", kind.group->name)),
                           {},
                           histogram.zero,
                           histogram.nan,
                           histogram.inf,
                           options.formats,
                           options.policy};
    for (const auto& [exponent, row] : histogram.rows)
        figure.exponents[exponent] = std::accumulate(row.begin(), row.end(), std::uint64_t{0});
    return figure;
}

RateFigure rate_figure(const KindFindings& kind, const HistogramOptions& options) {
    const MagnitudeHistogram& histogram = kind.total.magnitudes.histogram;
    const auto [low, high] = scale_range(kind, options);
    const auto nonzero = static_cast<double>(std::max<std::uint64_t>(histogram.nonzero(), 1));
    std::string title = "What a loss scale loses and saves";
    if (const CastRule rule = options.rule(); rule.rounding != Rounding::nearest_even || rule.flush)
        title += fmt::format(" ({}{}{})", name_of(rule.rounding), rule.flush ? ", subnormals flushed" : "",
                             rule.rounding == Rounding::stochastic ? ", the worst the random bits can do" : "");
    RateFigure rates{title, low, options.recommendation.limit, {}};
    for (std::size_t i = 0; i < options.formats.size(); ++i) {
        const FormatSpec& format = options.formats[i];
        const Recommendation& advice = kind.formats[i].recommendation;
        RateCurve curve{format, {}, {}, std::nullopt, advice.log2_scale};
        if (advice.window) curve.window = {advice.window->low, advice.window->high};
        for (int k = low; k <= high; ++k) {
            const ClassCounts counts = classes_at(kind.total, format, k, options);
            curve.underflow.push_back(static_cast<double>(counts.underflow) / nonzero);
            curve.overflow.push_back(static_cast<double>(counts.overflow) / nonzero);
        }
        rates.curves.push_back(std::move(curve));
    }
    return rates;
}

std::string svg_report(const HistogramFindings& findings, const HistogramOptions& options) {
    std::vector<Figure> figures;
    for (const KindFindings& kind : findings.kinds) {
        figures.emplace_back(magnitude_figure(kind, options));
        if (kind.total.is_gradient()) figures.emplace_back(rate_figure(kind, options));
    }
    for (Figure& figure : recipe_figures(findings, options)) figures.push_back(std::move(figure));
    return svg_document(figures);
}

} // namespace amp::histogram_tool

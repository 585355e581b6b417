#include <ampscope/sim/base/text.h>
#include <ampscope/tools/amp-histogram/recipe.h>
#include <ampscope/tools/amp-histogram/report.h>
#include <ampscope/tools/chart/loss_scale_figure.h>

#include <fmt/format.h>

#include <numeric>

namespace amp::histogram_tool {

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

std::string svg_report(const HistogramFindings& findings, const HistogramOptions& options) {
    std::vector<Figure> figures;
    for (const KindFindings& kind : findings.kinds) {
        figures.emplace_back(magnitude_figure(kind, options));
        if (kind.total.is_gradient())
            figures.emplace_back(loss_scale_figure(kind.scales, options.recommendation.limit));
    }
    for (Figure& figure : recipe_figures(findings, options)) figures.push_back(std::move(figure));
    return svg_document(figures);
}

} // namespace amp::histogram_tool

#include <ampscope/sim/base/text.h>
#include <ampscope/tools/amp-histogram/recipe.h>
#include <ampscope/tools/amp-histogram/report.h>
#include <ampscope/tools/chart/loss_scale_figure.h>

#include <fmt/format.h>

namespace amp::histogram_tool {

MagnitudeFigure magnitude_figure(const KindFindings& kind, const HistogramOptions& options) {
    const MagnitudeHistogram& histogram = kind.total.magnitudes.histogram;
    return {"Magnitudes of " + plural(kind.total.tensors, "tensor") +
                (kind.total.is_gradient() ? "" : fmt::format(" of {}", kind.group->name)),
            histogram.exponents(),
            histogram.zero,
            histogram.nan,
            histogram.inf,
            options.formats,
            options.policy};
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

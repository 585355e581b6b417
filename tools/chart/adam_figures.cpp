#include <ampscope/tools/chart/adam_figures.h>

#include <ampscope/formats/codec.h>
#include <ampscope/sim/base/share.h>
#include <ampscope/sim/base/text.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace amp {

namespace {

std::string note_of(const AdamFindings& f, std::size_t state) {
    const EpsEffects& e = f.total.states[state].eps[f.question.usual_eps];
    if (quantize(f.question.states[state].format, f.usual_eps()) == 0)
        return fmt::format("eps is stored as 0; {} of all steps are NaN or infinite",
                           percent(e.nonfinite, f.total.elements));
    return fmt::format("{} decided by eps, {} with v = 0", percent(e.dominated, f.total.nonzero),
                       percent(e.ratio.zero, f.total.nonzero));
}

} // namespace

BarFigure ratio_figure(const AdamFindings& f) {
    BarFigure figure{
        .title = fmt::format("Adam on {}: sqrt(v_hat) / eps", f.name),
        .subtitle = fmt::format(
            "elements with a gradient, eps {:g} as each format stores it; below 1 eps sets the step", f.usual_eps()),
        .x_label = "sqrt(v_hat) / eps",
        .panels = {}};
    for (std::size_t s = 0; s < f.total.states.size(); ++s) {
        const EpsEffects& e = f.total.states[s].eps[f.question.usual_eps];
        figure.panels.push_back({.name = fmt::format("state in {}", f.question.states[s].name()),
                                 .note = note_of(f, s),
                                 .bins = {e.ratio.bins.begin(), e.ratio.bins.end()},
                                 .elements = f.total.nonzero});
    }
    return figure;
}

LineFigure sweep_figure(const AdamFindings& f) {
    LineFigure figure{
        .title = "The sweep of eps",
        .subtitle = "percent of the elements with a gradient whose step eps decides; of all, steps that are not finite",
        .x_label = "log10 eps",
        .marks = {},
        .panels = {}};
    std::vector<double> at;
    for (const double eps : f.question.eps)
        if (eps > 0) at.push_back(std::log10(eps));
    figure.first = *std::ranges::min_element(at);
    figure.last = *std::ranges::max_element(at);
    double most = 0;
    for (std::size_t s = 0; s < f.total.states.size(); ++s) {
        LineSeries decided{.name = "eps decides", .points = {}}, broken{.name = "NaN or infinite", .points = {}};
        for (std::size_t i = f.question.eps.size(); i-- > 0;) {
            if (f.question.eps[i] <= 0) continue;
            const double x = std::log10(f.question.eps[i]);
            decided.points.emplace_back(x, 100 * Share{f.total.states[s].eps[i].dominated, f.total.nonzero}.rate());
            broken.points.emplace_back(x, 100 * Share{f.total.states[s].eps[i].nonfinite, f.total.elements}.rate());
            most = std::max({most, decided.points.back().second, broken.points.back().second});
        }
        figure.panels.push_back(
            {.name = fmt::format("state in {}", f.question.states[s].name()), .note = {}, .series = {decided, broken}});
    }
    if (most == 0) figure.range = {0, 1}; // the usual room around a line would go below 0 %
    return figure;
}

} // namespace amp

#include <ampscope/tools/chart/loss_scale_figure.h>

#include <fmt/format.h>

namespace amp {

RateFigure loss_scale_figure(const ScaleCurves& scales, double limit) {
    const CastRule& rule = scales.rule;
    std::string title = "What a loss scale loses and saves";
    if (rule.rounding != Rounding::nearest_even || rule.flush)
        title += fmt::format(" ({}{}{})", name_of(rule.rounding), rule.flush ? ", subnormals flushed" : "",
                             rule.rounding == Rounding::stochastic ? ", the worst the random bits can do" : "");
    RateFigure figure{title, scales.first_log2, limit, {}};
    for (const ScaleCurve& curve : scales.curves) {
        const Recommendation& advice = curve.recommendation;
        RateCurve& shown = figure.curves.emplace_back(
            RateCurve{curve.format, curve.underflow, curve.overflow, std::nullopt, advice.log2_scale,
                      advice.known == Known::exact});
        if (advice.window) shown.window = {advice.window->low, advice.window->high};
    }
    return figure;
}

} // namespace amp

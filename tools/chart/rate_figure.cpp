#include <ampscope/sim/base/text.h>
#include <ampscope/tools/chart/figure.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

namespace amp::svg {

namespace {

constexpr double rates_top = 84, rates_height = 88, rates_pitch = 136;

/// Decade of the lowest rate worth drawing; rates of 0 lie one step below it, on the panel's base line.
int lowest_decade(const RateFigure& figure) {
    double lowest = figure.limit > 0 ? figure.limit / 10 : 1e-3;
    for (const RateCurve& curve : figure.curves)
        for (const auto* rates : {&curve.underflow, &curve.overflow})
            for (const double rate : *rates)
                if (rate > 0) lowest = std::min(lowest, rate);
    return std::max(static_cast<int>(std::floor(std::log10(lowest) + 1e-9)), -8);
}

struct Panel {
    Scale x, y; ///< log2 of the scale; log10 of the rate
    int base;   ///< log10 of the rate that stands for 0
    [[nodiscard]] double at(double rate) const {
        return y(rate > 0 ? std::clamp<double>(std::log10(rate), base + 0.5, 0) : base);
    }
};

/// `css` is the name of the curve, too.
void draw_curve(Canvas& canvas, const Panel& panel, const RateFigure& figure, const std::vector<double>& rates,
                std::string_view css) {
    std::string d, values;
    for (std::size_t i = 0; i < rates.size(); ++i) {
        const double log2 = figure.first_log2 + static_cast<double>(i);
        fmt::format_to(std::back_inserter(d), "{}{} {}", i == 0 ? "M" : "L", number(panel.x(log2)),
                       number(panel.at(rates[i])));
        fmt::format_to(std::back_inserter(values), "{}[{},{}]", i == 0 ? "" : ",", log2, json_number(rates[i], 5));
    }
    canvas.open_data({{"k", std::string(css)}, {"n", std::string(css)}, {"p", "[" + values + "]"}});
    canvas.path(d, css);
    canvas.close_data();
}

void draw_axes(Canvas& canvas, const Panel& panel, const RateFigure& figure) {
    for (int decade = panel.base; decade <= 0; ++decade) {
        const bool labelled = decade == panel.base || decade % 2 == 0;
        if (labelled || decade == 0)
            canvas.line(panel.x.begin, panel.y(decade), panel.x.end, panel.y(decade),
                        decade == panel.base ? "axis" : "grid");
        if (labelled)
            canvas.text(panel.x.begin - 6, panel.y(decade) + 4, "small quiet", Anchor::end,
                        decade == panel.base ? "0"
                        : decade >= -5       ? fmt::format("{:g} %", std::pow(10, decade + 2))
                                             : fmt::format("1e{} %", decade + 2));
    }
    const double step = std::max(1.0, tick_step(panel.x.to - panel.x.from, 12));
    for (double tick = std::ceil(panel.x.from / step) * step; tick <= panel.x.to; tick += step) {
        canvas.line(panel.x(tick), panel.y.begin, panel.x(tick), panel.y.begin + 4, "axis");
        canvas.text(panel.x(tick), panel.y.begin + 16, "small", Anchor::middle, power_label(static_cast<int>(tick)));
    }
    if (figure.limit > 0) {
        canvas.line(panel.x.begin, panel.at(figure.limit), panel.x.end, panel.at(figure.limit), "limit",
                    "limit of the underflow rate: " + limit_percent(figure.limit));
    }
}

std::string verdict(const RateCurve& curve) {
    if (!curve.known)
        return "more may have underflowed before it was recorded: " +
               (curve.recommended
                    ? fmt::format("{} is advised, but what it loses is unknown", power_label(*curve.recommended))
                    : std::string("which scales are safe is unknown"));
    if (!curve.window) return "no power of two both stays under the limit and overflows nowhere";
    const auto [lo, hi] = *curve.window;
    std::string text = lo == hi ? "safe scale " + power_label(lo)
                                : fmt::format("safe scales {} to {}", power_label(lo), power_label(hi));
    if (lo <= 0 && 0 <= hi) text += "; needs no scaling";
    else if (curve.recommended)
        text += "; recommended " + power_label(*curve.recommended) +
                (*curve.recommended < lo ? ", below the safe ones to keep a margin to overflow" : "");
    else text += "; none recommended";
    return text;
}

void draw_window(Canvas& canvas, const Panel& panel, const RateCurve& curve) {
    canvas.open_data({{"k", "window"}});
    if (curve.window) {
        const double from = panel.x(std::clamp<double>(curve.window->first - 0.5, panel.x.from, panel.x.to));
        const double to = panel.x(std::clamp<double>(curve.window->second + 0.5, panel.x.from, panel.x.to));
        canvas.rect(from, panel.y.end, to - from, panel.y.begin - panel.y.end, "window", verdict(curve));
        canvas.line(from, panel.y.end, from, panel.y.begin, "window-edge");
        canvas.line(to, panel.y.end, to, panel.y.begin, "window-edge");
    }
    canvas.close_data();
    if (!curve.recommended || *curve.recommended < panel.x.from || *curve.recommended > panel.x.to) return;
    const double x = panel.x(*curve.recommended);
    canvas.open_data({{"k", "recommended"}});
    canvas.line(x, panel.y.end, x, panel.y.begin, "recommended",
                "recommended scale " + power_label(*curve.recommended));
    canvas.path(fmt::format("M{} {}l-5 -7h10z", number(x), number(panel.y.end)), "pointer");
    canvas.close_data();
}

void draw_panel(Canvas& canvas, const Panel& panel, const RateFigure& figure, const RateCurve& curve) {
    canvas.open_group(fmt::format("{}: {}", curve.format.name, verdict(curve)));
    canvas.open_data(
        {{"plot", plot_data(panel.x, panel.y)}, {"unit", "share"}, {"x", "loss scale"}, {"xunit", "log2"}});
    canvas.text(16, panel.y.end - 12, "mono", Anchor::start, curve.format.name);
    canvas.text(left_edge, panel.y.end - 12, "quiet", Anchor::start, verdict(curve));
    draw_window(canvas, panel, curve);
    draw_axes(canvas, panel, figure);
    draw_curve(canvas, panel, figure, curve.overflow, "overflow");
    draw_curve(canvas, panel, figure, curve.underflow, "underflow");
    for (std::size_t i = 0; i < curve.underflow.size(); ++i) {
        const int log2 = figure.first_log2 + static_cast<int>(i);
        const double from = panel.x(std::max(log2 - 0.5, panel.x.from)), to = panel.x(std::min(log2 + 0.5, panel.x.to));
        canvas.rect(from, panel.y.end, to - from, panel.y.begin - panel.y.end, "hit",
                    fmt::format("{} at scale {}: {} underflow, {} overflow (of non-zero)", curve.format.name,
                                power_label(log2), percent(curve.underflow[i]), percent(curve.overflow[i])));
    }
    canvas.close_data();
    canvas.close_group();
}

void draw_legend(Canvas& canvas, const RateFigure& figure, double y) {
    double x = left_edge;
    const auto entry = [&](std::string_view css, const std::string& label, double text_width) {
        open_key(canvas, css == "limit" ? "" : std::string(css), {x, y, text_width});
        if (css == "window") canvas.rect(x, y - 9, 24, 11, css);
        else canvas.line(x, y - 4, x + 24, y - 4, css);
        canvas.text(x + 30, y, "small", Anchor::start, label);
        canvas.close_data();
        x += 30 + text_width + 18;
    };
    entry("underflow", "underflow", 56);
    entry("overflow", "overflow", 50);
    entry("window", "safe window", 70);
    entry("recommended", "recommended scale", 108);
    if (figure.limit > 0) entry("limit", "limit " + limit_percent(figure.limit), 80);
}

} // namespace

double draw(Canvas* canvas, const RateFigure& figure, double y) {
    const double height = rates_top + rates_pitch * static_cast<double>(figure.curves.size()) + 8;
    if (canvas == nullptr) return height;
    canvas->open_group(figure.title);
    draw_title(*canvas, figure.title,
               "share of the finite non-zero elements that become zero, or overflow, when the tensor is multiplied by "
               "the scale",
               y);
    draw_legend(*canvas, figure, y + 58);
    const int base = lowest_decade(figure) - 1;
    double top = y + rates_top;
    for (const RateCurve& curve : figure.curves) {
        const double last = figure.first_log2 + static_cast<double>(curve.underflow.size()) - 1;
        const Panel panel{
            {static_cast<double>(figure.first_log2), std::max(last, figure.first_log2 + 1.0), left_edge, right_edge},
            {static_cast<double>(base), 0, top + 12 + rates_height, top + 12},
            base};
        draw_panel(*canvas, panel, figure, curve);
        top += rates_pitch;
    }
    canvas->text((left_edge + right_edge) / 2, y + height - 8, "small quiet", Anchor::middle, "loss scale");
    canvas->close_group();
    return height;
}

std::string description(const RateFigure& figure) {
    std::string text = "Rates over the loss scale.";
    for (const RateCurve& curve : figure.curves) text += fmt::format(" {}: {}.", curve.format.name, verdict(curve));
    return text;
}

} // namespace amp::svg

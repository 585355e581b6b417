#include <ampscope/sim/base/text.h>
#include <ampscope/tools/chart/figure.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace amp::svg {

namespace {

constexpr double bars_top = 56, bars_height = 64, bars_pitch = 116, bars_foot = 14;

/// The bins that all panels show.
std::pair<int, int> range_of(const BarFigure& figure) {
    int from = 1'000'000, to = -1'000'000;
    for (const BarPanel& panel : figure.panels) {
        if (panel.bins.empty()) continue;
        from = std::min(from, panel.bins.begin()->first);
        to = std::max(to, panel.bins.rbegin()->first + 1);
    }
    return from < to ? std::pair(from, to) : std::pair(0, 1);
}

void draw_panel(Canvas& canvas, const BarPanel& panel, const Scale& x, double top) {
    canvas.open_group(panel_label(panel.name, panel.note));
    draw_heading(canvas, panel.name, panel.note, top - 12);
    std::uint64_t most = 1;
    for (const auto& [bin, n] : panel.bins) most = std::max(most, n);
    const double base = top + bars_height;
    canvas.line(x.begin, base, x.end, base, "axis");
    if (!panel.bins.empty())
        canvas.text(x.begin - 6, top + 8, "small quiet", Anchor::end, percent(most, panel.elements));
    const double step = std::max(1.0, tick_step(x.to - x.from, 12));
    for (double tick = std::ceil(x.from / step) * step; tick <= x.to - 1; tick += step) {
        const double at = (x(tick) + x(tick + 1)) / 2;
        canvas.line(at, base, at, base + 4, "axis");
        canvas.text(at, base + 16, "small", Anchor::middle, power_label(static_cast<int>(tick)));
    }
    for (const auto& [bin, n] : panel.bins) {
        const double height = std::max(1.5, bars_height * static_cast<double>(n) / static_cast<double>(most));
        const double room = x(bin + 1) - x(bin), gap = std::min(2.0, room / 5);
        canvas.rect(x(bin) + gap / 2, base - height, room - gap, height, "bar",
                    fmt::format("{}: {} ({})", power_label(bin), grouped(n), percent(n, panel.elements)));
    }
    canvas.close_group();
}

} // namespace

double draw(Canvas* canvas, const BarFigure& figure, double y) {
    const double height = bars_top + bars_pitch * static_cast<double>(figure.panels.size()) + bars_foot;
    if (canvas == nullptr) return height;
    canvas->open_group(figure.title);
    draw_title(*canvas, figure.title, figure.subtitle, y);
    const auto [from, to] = range_of(figure);
    const Scale x{static_cast<double>(from), static_cast<double>(to), left_edge, right_edge};
    double top = y + bars_top + 24;
    for (const BarPanel& panel : figure.panels) {
        draw_panel(*canvas, panel, x, top);
        top += bars_pitch;
    }
    canvas->text((left_edge + right_edge) / 2, y + height - 8, "small quiet", Anchor::middle, figure.x_label);
    canvas->close_group();
    return height;
}

std::string description(const BarFigure& figure) {
    std::string text = figure.title + ".";
    for (const BarPanel& panel : figure.panels) text += " " + panel_label(panel.name, panel.note) + ".";
    return text;
}

} // namespace amp::svg

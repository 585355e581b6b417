#include <ampscope/sim/base/text.h>
#include <ampscope/tools/chart/figure.h>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace amp::svg {

namespace {

constexpr double plot_top = 62, plot_height = 170, band_height = 20, band_pitch = 26, slot = 44;

struct Layout {
    Scale x, y; ///< log2 magnitude; share of all elements
    double zero_x, nonfinite_x;
    double bands_y;
    double share_step;
};

double share(std::uint64_t n, const MagnitudeFigure& figure) {
    return static_cast<double>(n) / static_cast<double>(std::max<std::uint64_t>(figure.count(), 1));
}

Layout layout_of(const MagnitudeFigure& figure, double y) {
    const auto [from, to] = binades_shown(figure);
    double highest = 0;
    for (const auto& [exponent, n] : figure.exponents) highest = std::max(highest, share(n, figure));
    if (highest == 0) highest = std::max(share(figure.zero + figure.nan + figure.inf, figure), 0.01);
    const double step = tick_step(highest * 1.02, 4);
    const double top = std::ceil(highest * 1.02 / step - 1e-9) * step;
    const bool nonfinite = figure.nan + figure.inf > 0;
    const double right = nonfinite ? right_edge - 2 * slot - 16 : right_edge;
    return {{static_cast<double>(from), static_cast<double>(to), left_edge + slot + 12, right},
            {0, top, y + plot_top + plot_height, y + plot_top},
            left_edge + 8,
            right + 28,
            y + plot_top + plot_height + 44,
            step};
}

void draw_bar(Canvas& canvas, const Layout& at, double x, double width, double value, std::string_view css,
              const std::string& tooltip) {
    if (value <= 0) return;
    const bool broken = value > at.y.to; // does not fit: cut, with its share written on it
    const double top = std::min(at.y(std::min(value, at.y.to)), at.y.begin - 1.5);
    canvas.rect(x, top, width, at.y.begin - top, css, tooltip);
    if (!broken) return;
    for (const double y : {top + 14, top + 20})
        canvas.path(fmt::format("M{} {}l{} -5l{} 5l{} -5", number(x - 2), number(y + 3), number(width / 3),
                                number(width / 3), number(width / 3 + 4)),
                    "break");
}

/// A bar beside the axis for elements without an exponent.
void draw_special(Canvas& canvas, const Layout& at, double x, std::string_view name, std::uint64_t n,
                  const std::string& label, const MagnitudeFigure& figure) {
    const double value = share(n, figure);
    draw_bar(canvas, at, x, 26, value, "special",
             fmt::format("{}: {}, {} of all", name, plural(n, "element"), percent(n, figure.count())));
    canvas.text(x + 13, at.y.begin + 16, "small", Anchor::middle, name);
    if (n > 0)
        canvas.text(x + 13, std::max(at.y(std::min(value, at.y.to)), at.y.end) - 4, "small quiet", Anchor::middle,
                    label);
}

void draw_axes(Canvas& canvas, const Layout& at, double right) {
    for (int i = 0;; ++i) {
        const double value = i * at.share_step;
        if (value > at.y.to * (1 + 1e-9)) break;
        canvas.line(left_edge, at.y(value), right, at.y(value), i == 0 ? "axis" : "grid");
        canvas.text(left_edge - 6, at.y(value) + 4, "small quiet", Anchor::end,
                    fmt::format("{:g} %", std::round(value * 1e10) / 1e8));
    }
    const double step = std::max(1.0, tick_step(at.x.to - at.x.from, 12));
    for (double tick = std::ceil(at.x.from / step) * step; tick <= at.x.to; tick += step) {
        canvas.line(at.x(tick), at.y.begin, at.x(tick), at.y.begin + 4, "axis");
        canvas.text(at.x(tick), at.y.begin + 16, "small", Anchor::middle, power_label(static_cast<int>(tick)));
    }
}

struct Zone {
    std::string_view css, label, short_label;
    std::string meaning;
    double from, to;
};

void draw_band(Canvas& canvas, const Layout& at, const FormatSpec& format, const Policy& policy, double y) {
    const FormatZones edge = zones_of(format, policy);
    const std::array zones = {
        Zone{"zone-zero", "zero", "0", fmt::format("|x| up to 2^{:g} becomes zero", edge.subnormal), -1e9,
             edge.subnormal},
        Zone{"zone-subnormal", "subnormal", "sub", "subnormal: fewer significant bits", edge.subnormal, edge.normal},
        Zone{"zone-normal", "normal", "", fmt::format("normal: {} significant bits", format.precision()), edge.normal,
             edge.overflow},
        Zone{"zone-overflow", "overflow", "ovf", fmt::format("overflow: |x| of 2^{:.4g} and more", edge.overflow),
             edge.overflow, 1e9},
    };
    canvas.open_group(format.name);
    canvas.text(left_edge + slot, y + 14, "mono", Anchor::end, format.name);
    for (const Zone& zone : zones) {
        const double from = at.x(std::clamp(zone.from, at.x.from, at.x.to)),
                     to = at.x(std::clamp(zone.to, at.x.from, at.x.to));
        if (to - from < 0.5) continue;
        canvas.rect(from, y, to - from, band_height, zone.css, fmt::format("{} {}", format.name, zone.meaning));
        const auto fits = [&](std::string_view text) {
            return 6.2 * static_cast<double>(text.size()) + 8 <= to - from;
        };
        const std::string_view label = fits(zone.label) ? zone.label : fits(zone.short_label) ? zone.short_label : "";
        if (!label.empty()) canvas.text((from + to) / 2, y + 14, "on-band", Anchor::middle, label);
    }
    canvas.rect(at.x.begin, y, at.x.end - at.x.begin, band_height, "frame");
    canvas.close_group();
}

} // namespace

double draw(Canvas* canvas, const MagnitudeFigure& figure, double y) {
    const Layout at = layout_of(figure, y);
    const double height = at.bands_y - y + band_pitch * static_cast<double>(figure.formats.size()) + 4;
    if (canvas == nullptr) return height;

    canvas->open_group(figure.title);
    draw_title(*canvas, figure.title,
               fmt::format("share of all {} in each binade; below, what becomes of it in each format ({}, scale 1)",
                           plural(figure.count(), "element"), zones_name(figure.policy)),
               y + 4);
    const bool nonfinite = figure.nan + figure.inf > 0;
    draw_axes(*canvas, at, nonfinite ? at.x.end : right_edge);
    draw_special(*canvas, at, at.zero_x, "zero", figure.zero, percent(figure.zero, figure.count()), figure);
    if (nonfinite) {
        draw_special(*canvas, at, at.nonfinite_x, "NaN", figure.nan, short_count(figure.nan), figure);
        draw_special(*canvas, at, at.nonfinite_x + slot - 6, "inf", figure.inf, short_count(figure.inf), figure);
    }
    for (const auto& [exponent, n] : figure.exponents) {
        const double left = at.x(exponent), right = at.x(exponent + 1);
        draw_bar(*canvas, at, left + 0.5, std::max(right - left - 1, 0.8), share(n, figure), "bar",
                 fmt::format("{} to {}: {}, {} of all", power_label(exponent), power_label(exponent + 1),
                             plural(n, "element"), percent(n, figure.count())));
    }
    canvas->text((at.x.begin + at.x.end) / 2, at.y.begin + 34, "small quiet", Anchor::middle, "magnitude |x|");
    for (std::size_t i = 0; i < figure.formats.size(); ++i)
        draw_band(*canvas, at, figure.formats[i], figure.policy, at.bands_y + band_pitch * static_cast<double>(i));
    canvas->close_group();
    return height;
}

std::string description(const MagnitudeFigure& figure) {
    std::string text =
        fmt::format("Histogram of {} by magnitude: {} zero, {} NaN, {} infinite", plural(figure.count(), "element"),
                    percent(figure.zero, figure.count()), grouped(figure.nan), grouped(figure.inf));
    if (!figure.exponents.empty())
        text += fmt::format("; the others lie between 2^{} and 2^{}", figure.exponents.begin()->first,
                            figure.exponents.rbegin()->first + 1);
    return text + ".";
}

} // namespace amp::svg

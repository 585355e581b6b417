#include <ampscope/sim/base/tensor_names.h>
#include <ampscope/sim/base/text.h>
#include <ampscope/tools/chart/figure.h>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace amp::svg {

namespace {

constexpr double dots_top = 56, dot_legend_row = 18, dot_row_height = 18, dots_foot = 44, dot_name_width = 210,
                 dot_radius = 4.5;
constexpr std::size_t dot_name_columns = 30;
constexpr std::array dot_colours = {"bar", "mark", "pointer", "special"};

using DotCorners = std::vector<std::pair<double, double>>;

/// The outline of a series' dot, in radii: each has a shape beside its colour. Without corners it is a circle.
const DotCorners& dot_shape(std::size_t series) {
    static const std::array<DotCorners, 5> shapes = {{{},
                                                      {{-1, -1}, {1, -1}, {1, 1}, {-1, 1}},
                                                      {{0, -1.3}, {1.3, 0}, {0, 1.3}, {-1.3, 0}},
                                                      {{0, -1.2}, {1.2, 1}, {-1.2, 1}},
                                                      {{0, 1.2}, {1.2, -1}, {-1.2, -1}}}};
    return shapes[series % shapes.size()];
}

void draw_dot(Canvas& canvas, std::size_t series, double x, double y, const std::string& tooltip) {
    const char* const colour = dot_colours[series % dot_colours.size()];
    const DotCorners& corners = dot_shape(series);
    if (corners.empty()) return canvas.circle(x, y, dot_radius, colour, tooltip);
    std::string path;
    for (const auto& [right, down] : corners)
        path += fmt::format("{}{} {}", path.empty() ? "M" : "L", number(x + dot_radius * right),
                            number(y + dot_radius * down));
    canvas.path(path + "z", colour, tooltip);
}

/// Whole powers of ten around all positive finite values.
std::pair<double, double> range_of(const DotFigure& figure) {
    double low = std::numeric_limits<double>::infinity(), high = 0;
    for (const DotRow& row : figure.rows)
        for (const double value : row.values)
            if (value > 0 && std::isfinite(value)) {
                low = std::min(low, value);
                high = std::max(high, value);
            }
    if (!(low <= high)) return {-3, 0};
    const double from = std::floor(std::log10(low));
    return {from, std::max(from + 1, std::ceil(std::log10(high)))};
}

std::string dot_value(double value) { return std::isfinite(value) ? fmt::format("{:.3g}", value) : "infinite or NaN"; }

/// Entries from left to right, in as many lines as they take; returns their number.
int draw_dot_legend(Canvas* canvas, const DotFigure& figure, double y) {
    double x = 16;
    int lines = 1;
    for (std::size_t s = 0; s < figure.series.size(); ++s) {
        const std::string name = clipped(printable(figure.series[s]), 60);
        const double room = 22 + 6.4 * static_cast<double>(width(name)) + 16;
        if (x > 16 && x + room > right_edge) {
            x = 16;
            ++lines;
        }
        if (canvas != nullptr) {
            const double at = y + dot_legend_row * (lines - 1);
            draw_dot(*canvas, s, x + 6, at - 4, "");
            canvas->text(x + 18, at, "small", Anchor::start, name);
        }
        x += room;
    }
    return lines;
}

void draw_dot_axis(Canvas& canvas, const Scale& x, double top, double bottom) {
    const int step = std::max(1, static_cast<int>(std::ceil((x.to - x.from) / 10)));
    for (int decade = static_cast<int>(x.from); decade <= static_cast<int>(x.to); decade += step) {
        canvas.line(x(decade), top, x(decade), bottom, "grid");
        canvas.text(x(decade), bottom + 16, "small", Anchor::middle,
                    decade < -4 || decade > 4 ? fmt::format("1e{}", decade)
                                              : fmt::format("{:g}", std::pow(10, decade)));
    }
}

void draw_dot_row(Canvas& canvas, const DotFigure& figure, const DotRow& row, const Scale& x, double y) {
    canvas.text(x.begin - 10, y + 4, "small", Anchor::end, shortened_name(printable(row.name), dot_name_columns));
    canvas.line(x.begin, y, x.end, y, "grid");
    for (std::size_t s = row.values.size(); s-- > 0;) { // the first on top
        const double value = row.values[s];
        if (std::isnan(value)) continue;
        const double at = value == 0 ? x.from : std::isfinite(value) ? std::log10(value) : x.to;
        draw_dot(canvas, s, x(at), y, fmt::format("{}, {}: {}", row.name, figure.series[s], dot_value(value)));
    }
}

} // namespace

double draw(Canvas* canvas, const DotFigure& figure, double y) {
    const double legend = dot_legend_row * draw_dot_legend(nullptr, figure, 0);
    const double body = dot_row_height * static_cast<double>(figure.rows.size());
    const double height = dots_top + legend + body + dots_foot;
    if (canvas == nullptr) return height;
    canvas->open_group(figure.title);
    draw_title(*canvas, figure.title, figure.subtitle, y);
    draw_dot_legend(canvas, figure, y + dots_top + 4);
    const auto [from, to] = range_of(figure);
    const Scale x{from, to, dot_name_width, right_edge};
    const double top = y + dots_top + legend;
    draw_dot_axis(*canvas, x, top, top + body);
    for (std::size_t r = 0; r < figure.rows.size(); ++r)
        draw_dot_row(*canvas, figure, figure.rows[r], x, top + dot_row_height * (static_cast<double>(r) + 0.5));
    canvas->text((x.begin + x.end) / 2, y + height - 8, "small quiet", Anchor::middle, figure.x_label);
    canvas->close_group();
    return height;
}

std::string description(const DotFigure& figure) {
    std::string text = sentence(figure.title);
    for (const DotRow& row : figure.rows) {
        std::string values;
        for (std::size_t s = 0; s < row.values.size(); ++s)
            if (!std::isnan(row.values[s]))
                values +=
                    fmt::format("{}{} {}", values.empty() ? "" : ", ", figure.series[s], dot_value(row.values[s]));
        text += " " + sentence(panel_label(row.name, values));
    }
    return text;
}

} // namespace amp::svg

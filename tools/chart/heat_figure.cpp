#include <ampscope/sim/base/tensor_names.h>
#include <ampscope/sim/base/text.h>
#include <ampscope/tools/chart/figure.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

namespace amp::svg {

namespace {

constexpr double heat_top = 56, legend = 26, guide_row = 15, row_height = 14, heat_foot = 44, name_width = 210;
constexpr std::size_t shades = 6, name_columns = 30;

std::size_t shade_of(double value, const HeatFigure& figure) {
    const auto reached = std::ranges::count_if(figure.levels, [&](double level) { return value >= level; });
    return std::min(static_cast<std::size_t>(reached), shades - 1);
}

/// "below 0.1 %", "0.1 % to 1 %", ..., "50 % and more".
std::string shade_label(std::size_t shade, const std::vector<double>& levels) {
    const auto text = [&](std::size_t i) { return limit_percent(levels[i]); };
    if (shade == 0) return "below " + text(0);
    return shade == levels.size() ? text(shade - 1) + " and more" : fmt::format("to {}", text(shade));
}

void draw_legend(Canvas& canvas, const HeatFigure& figure, double y) {
    double x = 16;
    for (std::size_t i = 0; i <= figure.levels.size(); ++i) {
        const std::string label = shade_label(i, figure.levels);
        canvas.rect(x, y - 10, 16, 12, fmt::format("heat-{}", i));
        canvas.text(x + 22, y, "small", Anchor::start, label);
        x += 22 + 6.4 * static_cast<double>(width(label)) + 16;
    }
}

/// One path a shade: equal neighbours are one rectangle.
void draw_cells(Canvas& canvas, const HeatFigure& figure, const Scale& x, double top) {
    std::array<std::string, shades> paths;
    for (std::size_t r = 0; r < figure.rows.size(); ++r) {
        const std::vector<double>& values = figure.rows[r].values;
        for (std::size_t i = 0; i < values.size();) {
            std::size_t end = i + 1;
            if (std::isnan(values[i])) {
                i = end;
                continue;
            }
            const std::size_t shade = shade_of(values[i], figure);
            while (end < values.size() && !std::isnan(values[end]) && shade_of(values[end], figure) == shade) ++end;
            const double left = x(static_cast<double>(i)), right = x(static_cast<double>(end));
            fmt::format_to(std::back_inserter(paths[shade]), "M{} {}h{}v{}h-{}z", number(left),
                           number(top + row_height * static_cast<double>(r)), number(right - left),
                           number(row_height - 1), number(right - left));
            i = end;
        }
    }
    for (std::size_t shade = 0; shade < shades; ++shade)
        if (!paths[shade].empty()) canvas.path(paths[shade], fmt::format("heat-{}", shade));
}

/// A row's values in percent, in JSON.
std::string cells_of(const HeatRow& row) {
    std::string cells;
    for (const double value : row.values) cells += (cells.empty() ? "" : ",") + json_number(100 * value, 3);
    return "[" + cells + "]";
}

void draw_rows(Canvas& canvas, const HeatFigure& figure, const Scale& x, double top) {
    canvas.open_data({{"columns", fmt::format("{}", fmt::join(figure.columns, "|"))}, {"x", figure.x_label}});
    for (std::size_t r = 0; r < figure.rows.size(); ++r) {
        const HeatRow& row = figure.rows[r];
        const double y = top + row_height * static_cast<double>(r);
        canvas.text(x.begin - 6, y + 11, "small", Anchor::end, shortened_name(printable(row.name), name_columns));
        canvas.open_data({{"cells", canvas.is_live() ? cells_of(row) : ""}});
        canvas.rect(x.begin, y, x.end - x.begin, row_height - 1, "hit", panel_label(row.name, row.note));
        canvas.close_data();
    }
    canvas.close_data();
}

void draw_columns(Canvas& canvas, const HeatFigure& figure, const Scale& x, double bottom) {
    std::size_t widest = 1;
    for (const std::string& label : figure.columns) widest = std::max(widest, width(label));
    const double room = 7.0 * static_cast<double>(widest) + 10, each = x(1) - x(0);
    const auto step = static_cast<std::size_t>(std::max(1.0, std::ceil(room / each)));
    for (std::size_t i = 0; i < figure.columns.size(); i += step) {
        const double at = (x(static_cast<double>(i)) + x(static_cast<double>(i + 1))) / 2;
        canvas.line(at, bottom, at, bottom + 4, "axis");
        canvas.text(at, bottom + 16, "small", Anchor::middle, figure.columns[i]);
    }
}

/// Each label beside its line, in a row of its own that no line of another crosses: lines begin in their label's row.
/// So the labels are to the right of their lines and descend from left to right, or, where one would leave the picture,
/// all are to the left and descend from right to left.
void draw_guides(Canvas& canvas, const HeatFigure& figure, const Scale& x, double top, double bottom) {
    const bool to_the_right = std::ranges::all_of(figure.guides, [&](const auto& guide) {
        return x(static_cast<double>(guide.first)) + 5.8 * static_cast<double>(width(guide.second)) < right_edge;
    });
    for (std::size_t i = 0; i < figure.guides.size(); ++i) {
        const auto& [column, label] = figure.guides[i];
        const std::size_t below = to_the_right ? figure.guides.size() - i : i + 1; // rows from here to the top
        const double at = x(static_cast<double>(column)), y = top - guide_row * static_cast<double>(below);
        canvas.line(at, y + 2, at, bottom, "guide");
        canvas.text(at + (to_the_right ? 5 : -5), y + 11, "small quiet", to_the_right ? Anchor::start : Anchor::end,
                    label);
    }
}

} // namespace

double draw(Canvas* canvas, const HeatFigure& figure, double y) {
    const double guides = guide_row * static_cast<double>(figure.guides.size());
    const double body = row_height * static_cast<double>(figure.rows.size());
    const double height = heat_top + legend + guides + body + heat_foot;
    if (canvas == nullptr) return height;
    canvas->open_group(figure.title);
    draw_title(*canvas, figure.title, figure.subtitle, y);
    draw_legend(*canvas, figure, y + heat_top + 4);
    const double top = y + heat_top + legend + guides;
    const Scale x{0, static_cast<double>(std::max<std::size_t>(figure.columns.size(), 1)), name_width, right_edge};
    draw_cells(*canvas, figure, x, top);
    draw_guides(*canvas, figure, x, top, top + body);
    draw_rows(*canvas, figure, x, top);
    draw_columns(*canvas, figure, x, top + body);
    canvas->text((x.begin + x.end) / 2, y + height - 8, "small quiet", Anchor::middle, figure.x_label);
    canvas->close_group();
    return height;
}

std::string description(const HeatFigure& figure) {
    std::string text = sentence(figure.title);
    for (const HeatRow& row : figure.rows) text += " " + sentence(panel_label(row.name, row.note));
    return text;
}

} // namespace amp::svg

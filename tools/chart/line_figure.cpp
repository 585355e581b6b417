#include <ampscope/sim/base/text.h>
#include <ampscope/tools/chart/figure.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <utility>

namespace amp::svg {

namespace {

constexpr double lines_top = 56, legend_row = 18, above_panel = 52, lines_foot = 34;
constexpr std::size_t styles = 14;
constexpr const char* quiet_key = "quiet"; // the others are numbered

struct Axes {
    Scale x, y;
};

/// The names of all series, in the order of their first appearance: each has one style in every panel.
std::vector<std::string> names_of(const LineFigure& figure) {
    std::vector<std::string> names;
    for (const LinePanel& panel : figure.panels)
        for (const LineSeries& series : panel.series)
            if (!series.quiet && std::ranges::find(names, series.name) == names.end()) names.push_back(series.name);
    return names;
}

std::string quiet_name(const LineFigure& figure) {
    for (const LinePanel& panel : figure.panels)
        for (const LineSeries& series : panel.series)
            if (series.quiet) return series.name;
    return "";
}

/// The values that all panels show, with a little room.
std::pair<double, double> range_of(const LineFigure& figure) {
    if (figure.range) return *figure.range;
    double low = std::numeric_limits<double>::infinity(), high = -low;
    for (const LinePanel& panel : figure.panels)
        for (const LineSeries& series : panel.series)
            for (const auto& [x, y] : series.points) {
                if (!std::isfinite(y)) continue;
                low = std::min(low, y);
                high = std::max(high, y);
            }
    if (!(low <= high)) return {0, 1};
    const double room = figure.log2_y ? 1 : high > low ? 0.05 * (high - low) : std::max(0.05 * std::abs(high), 0.5);
    return {low - room, high + room};
}

/// Path data of a line, or of points. Of the points in one pixel column the first, the extremes and the last are drawn.
class Path {
  public:
    Path(const Axes& axes, const LineSeries& series, double end) : axes_(axes), series_(series) {
        for (std::size_t i = 0; i < series.points.size(); ++i) add(i);
        const bool open = count_ > 0 || !d_.empty();
        finish_column();
        if (series.holds && open && !broken_) fmt::format_to(std::back_inserter(d_), "H{}", number(axes_.x(end)));
    }

    [[nodiscard]] const std::string& data() const { return d_; }
    /// The points that are drawn, in JSON: [x,y], with a band [x,y,least,greatest]; 0 where the line is interrupted.
    [[nodiscard]] std::string values() const { return "[" + values_ + "]"; }

  private:
    void add(std::size_t i) {
        if (!std::isfinite(series_.points[i].second)) {
            finish_column();
            broken_ = true;
            return;
        }
        const double at = std::round(axes_.x(series_.points[i].first) * 2) / 2;
        if (count_ > 0 && at != column_) finish_column();
        if (count_++ == 0) first_ = low_ = high_ = i;
        column_ = at;
        last_ = i;
        if (y_of(i) < y_of(low_)) low_ = i;
        if (y_of(i) > y_of(high_)) high_ = i;
    }
    void finish_column() {
        if (count_ == 0) return;
        point(first_);
        if (y_of(low_) < std::min(y_of(first_), y_of(last_))) point(low_);
        if (y_of(high_) > std::max(y_of(first_), y_of(last_))) point(high_);
        if (count_ > 1) point(last_);
        count_ = 0;
    }
    /// Values beyond the axis are drawn at its ends.
    [[nodiscard]] double y_of(std::size_t i) const {
        return std::clamp(series_.points[i].second, axes_.y.from, axes_.y.to);
    }
    void note_value(std::size_t i) {
        constexpr int digits = 5;
        const auto& [x, y] = series_.points[i];
        if (!values_.empty()) values_ += broken_ ? ",0," : ",";
        values_ += fmt::format("[{},{}", json_number(x, 12), json_number(y, digits));
        if (i < series_.band.size())
            values_ += fmt::format(",{},{}", json_number(series_.band[i].first, digits),
                                   json_number(series_.band[i].second, digits));
        values_ += ']';
    }
    void point(std::size_t i) {
        const double y = y_of(i);
        const bool begins = d_.empty() || broken_;
        const std::string left = number(series_.apart ? column_ - 2 : column_), height = number(axes_.y(y));
        note_value(i);
        if (series_.apart) d_ += fmt::format("M{} {}h4", left, height);
        else if (series_.holds && !begins) d_ += fmt::format("H{}V{}", left, height);
        else d_ += fmt::format("{}{} {}", begins ? "M" : "L", left, height);
        broken_ = false;
    }

    const Axes& axes_;
    const LineSeries& series_;
    bool broken_ = false;
    std::string d_, values_;
    int count_ = 0; ///< points in the pixel column
    double column_ = 0;
    std::size_t first_ = 0, last_ = 0, low_ = 0, high_ = 0; ///< of them, by their index
};

void draw_axes(Canvas& canvas, const Axes& axes, bool log2_y) {
    const auto y_step =
        log2_y ? std::max(1.0, tick_step(axes.y.to - axes.y.from, 4)) : tick_step(axes.y.to - axes.y.from, 4);
    canvas.open_data({{"ticks", "y"}});
    for (double tick = std::ceil(axes.y.from / y_step) * y_step; tick <= axes.y.to; tick += y_step) {
        canvas.line(axes.x.begin, axes.y(tick), axes.x.end, axes.y(tick), "grid");
        canvas.text(axes.x.begin - 6, axes.y(tick) + 4, "small quiet", Anchor::end,
                    log2_y ? power_label(static_cast<int>(tick))
                           : fmt::format("{:.4g}", std::abs(tick) < 1e-12 ? 0 : tick));
    }
    canvas.close_data();
    canvas.line(axes.x.begin, axes.y.begin, axes.x.end, axes.y.begin, "axis");
    const double x_step = std::max(1.0, tick_step(axes.x.to - axes.x.from, 10));
    for (double tick = std::ceil(axes.x.from / x_step) * x_step; tick <= axes.x.to; tick += x_step) {
        canvas.line(axes.x(tick), axes.y.begin, axes.x(tick), axes.y.begin + 4, "axis");
        canvas.text(axes.x(tick), axes.y.begin + 16, "small", Anchor::middle, fmt::format("{:.10g}", tick));
    }
}

std::string style_of(std::size_t index) { return fmt::format("series series-{}", index % styles); }

void draw_marks(Canvas& canvas, const Axes& axes, const LineSeries& series) {
    double last = -10;
    for (const double x : series.marks) {
        const double at = axes.x(x);
        if (at - last < 3) continue; // they would cover each other
        last = at;
        canvas.path(fmt::format("M{} {}l-4 -7h8z", number(at), number(axes.y.end)), "mark", fmt::format("{:.10g}", x));
    }
}

/// The area between the least and the greatest values, where both are finite.
void draw_band(Canvas& canvas, const Axes& axes, const LineSeries& series) {
    const auto at = [&](double y) { return number(axes.y(std::clamp(y, axes.y.from, axes.y.to))); };
    std::string above, below;
    for (std::size_t i = 0; i < series.band.size(); ++i) {
        const auto& [low, high] = series.band[i];
        if (!std::isfinite(low) || !std::isfinite(high)) continue;
        const std::string x = number(axes.x(series.points[i].first));
        above += fmt::format("{}{} {}", above.empty() ? "M" : "L", x, at(high));
        below.insert(0, fmt::format("L{} {}", x, at(low)));
    }
    if (!above.empty()) canvas.path(above + below + "z", "band");
}

/// Whether a logarithmic axis would show more: of values that are not negative and differ by some factor.
bool may_be_logarithmic(const LineFigure& figure) {
    constexpr double factor = 4;
    double low = std::numeric_limits<double>::infinity(), high = 0;
    for (const LinePanel& panel : figure.panels)
        for (const LineSeries& series : panel.series) {
            if (panel.range || series.holds || series.apart || !series.band.empty()) return false;
            for (const auto& [x, y] : series.points) {
                if (y < 0) return false;
                if (y > 0 && std::isfinite(y)) low = std::min(low, y);
                if (std::isfinite(y)) high = std::max(high, y);
            }
        }
    return !figure.log2_y && !figure.range && high >= factor * low;
}

void draw_panel(Canvas& canvas, const Axes& axes, const LineFigure& figure, const LinePanel& panel,
                const std::vector<std::string>& names) {
    canvas.open_group(panel_label(panel.name, panel.note));
    canvas.open_data({{"plot", plot_data(axes.x, axes.y)},
                      {"unit", figure.log2_y ? "log2" : "plain"},
                      {"x", figure.x_label},
                      {"log", may_be_logarithmic(figure) ? "1" : ""}});
    draw_heading(canvas, panel.name, panel.note, axes.y.end - 12);
    draw_axes(canvas, axes, figure.log2_y);
    for (const bool quiet : {true, false}) // what is compared with lies below
        for (const LineSeries& series : panel.series) {
            if (series.quiet != quiet) continue;
            const Path path(axes, series, figure.last);
            const auto index = static_cast<std::size_t>(std::ranges::find(names, series.name) - names.begin());
            canvas.open_data({{"k", quiet ? std::string(quiet_key) : std::to_string(index)},
                              {"n", series.name},
                              {"holds", series.holds || quiet ? "1" : ""},
                              {"p", canvas.is_live() ? path.values() : ""}});
            draw_band(canvas, axes, series);
            canvas.path(path.data(), quiet ? "compare" : style_of(index), series.name);
            draw_marks(canvas, axes, series);
            canvas.close_data();
        }
    canvas.close_data();
    canvas.close_group();
}

/// Whether the names are needed to tell what is drawn: short bars alone do not look like a line.
bool needs_names(const LineFigure& figure, const std::vector<std::string>& names) {
    return names.size() > 1 || std::ranges::any_of(figure.panels, [](const LinePanel& panel) {
               return std::ranges::any_of(panel.series, &LineSeries::apart);
           });
}

/// What the lines and marks are; returns the rows it takes.
int draw_legend(Canvas* canvas, const LineFigure& figure, const std::vector<std::string>& names, double y) {
    double x = left_edge;
    int rows = 0;
    const auto entry = [&](std::string_view css, const std::string& label, const std::string& key) {
        const double text_width = 6.4 * static_cast<double>(width(label));
        if (rows == 0) rows = 1;
        if (x + 30 + text_width > right_edge && x > left_edge) {
            x = left_edge;
            ++rows;
        }
        const double at = y + legend_row * (rows - 1);
        if (canvas != nullptr) open_key(*canvas, key, {x, at, text_width});
        if (canvas != nullptr && css == "mark")
            canvas->path(fmt::format("M{} {}l-4 -7h8z", number(x + 12), number(at - 1)), css);
        else if (canvas != nullptr) canvas->line(x, at - 4, x + 24, at - 4, css);
        if (canvas != nullptr) canvas->text(x + 30, at, "small", Anchor::start, label);
        if (canvas != nullptr) canvas->close_data();
        x += 30 + text_width + 18;
    };
    if (needs_names(figure, names))
        for (std::size_t i = 0; i < names.size(); ++i)
            entry(style_of(i), clipped(printable(names[i]), 60), std::to_string(i));
    if (const std::string compared = quiet_name(figure); !compared.empty()) entry("compare", compared, quiet_key);
    if (!figure.marks.empty()) entry("mark", figure.marks, "");
    return rows;
}

} // namespace

double draw(Canvas* canvas, const LineFigure& figure, double y) {
    const std::vector<std::string> names = names_of(figure);
    const double legend = legend_row * draw_legend(nullptr, figure, names, 0);
    const double height = lines_top + legend +
                          (figure.panel_height + above_panel) * static_cast<double>(figure.panels.size()) + lines_foot -
                          26;
    if (canvas == nullptr) return height;
    canvas->open_group(figure.title);
    draw_title(*canvas, figure.title, figure.subtitle, y);
    draw_legend(canvas, figure, names, y + lines_top);
    const std::pair<double, double> common = range_of(figure);
    double top = y + lines_top + legend + 12;
    for (const LinePanel& panel : figure.panels) {
        const auto& [low, high] = panel.range ? *panel.range : common;
        const Axes axes{{figure.first, std::max(figure.last, figure.first + 1), left_edge, right_edge},
                        {low, high, top + 8 + figure.panel_height, top + 8}};
        draw_panel(*canvas, axes, figure, panel, names);
        top += figure.panel_height + above_panel;
    }
    canvas->text((left_edge + right_edge) / 2, y + height - 8, "small quiet", Anchor::middle, figure.x_label);
    canvas->close_group();
    return height;
}

std::string description(const LineFigure& figure) {
    std::string text = sentence(figure.title);
    for (const LinePanel& panel : figure.panels) {
        text += " " + panel_label(panel.name, panel.note);
        const char* separator = ": ";
        for (const LineSeries& series : panel.series) {
            if (series.points.empty() || series.quiet) continue;
            const auto value = [&](double y) {
                if (!std::isfinite(y)) return std::string("not finite");
                if (!figure.log2_y) return fmt::format("{:.3g}", y);
                return fmt::format("2^{:.3g}", std::abs(y) < 5e-4 ? 0.0 : y); // less is rounding noise of 1
            };
            text += fmt::format("{}{} from {} to {}", std::exchange(separator, ", "), series.name,
                                value(series.points.front().second), value(series.points.back().second));
        }
        text += ".";
    }
    return text;
}

} // namespace amp::svg

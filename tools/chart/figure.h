// Shared by the figures of chart.h: a linear axis, tick steps, the style sheet.
#pragma once

#include <ampscope/tools/chart/chart.h>
#include <ampscope/tools/chart/svg.h>

namespace amp::svg {

/// Maps [from, to] onto the pixels [begin, end].
struct Scale {
    double from, to, begin, end;
    [[nodiscard]] double operator()(double x) const { return begin + (x - from) / (to - from) * (end - begin); }
};

/// The smallest of 1, 2, 5, 10, 20 ... (times any power of ten) that makes at most `ticks` steps of `range`.
double tick_step(double range, int ticks);

/// 2^log2 in superscript digits; "1" for 0.
std::string power_label(int log2);

/// Style sheet and patterns; ids start with `id`.
std::string definitions(const std::string& id);

/// Draws a figure with its upper edge at `y`; returns its height. With `canvas` null it only measures.
double draw(Canvas* canvas, const MagnitudeFigure& figure, double y);
double draw(Canvas* canvas, const RateFigure& figure, double y);
double draw(Canvas* canvas, const LineFigure& figure, double y);
double draw(Canvas* canvas, const BarFigure& figure, double y);
double draw(Canvas* canvas, const HeatFigure& figure, double y);
double draw(Canvas* canvas, const DotFigure& figure, double y);

/// The text alternatives.
std::string description(const MagnitudeFigure& figure);
std::string description(const RateFigure& figure);
std::string description(const LineFigure& figure);
std::string description(const BarFigure& figure);
std::string description(const HeatFigure& figure);
std::string description(const DotFigure& figure);

/// The axes of a panel as a page's script reads them: what they run from and to, and these ends in pixels, x first.
std::string plot_data(const Scale& x, const Scale& y);

/// The name of a panel: "name: note", or the name alone.
std::string panel_label(const std::string& name, const std::string& note);
/// Draws the title of a figure and what it shows, clipped to the page.
void draw_title(Canvas& canvas, const std::string& title, const std::string& subtitle, double y);
/// Draws the heading of a panel: its name, then its note, clipped to the page.
void draw_heading(Canvas& canvas, const std::string& name, const std::string& note, double y);

/// Where an entry of a legend lies: its left edge, the base line of its text, and the width of that.
struct LegendPlace {
    double x, y, text_width;
};
/// On a live canvas a group with the key of what a click on the entry hides (groups with that data-k), and room for the
/// click. To be closed by close_data().
void open_key(Canvas& canvas, const std::string& key, const LegendPlace& at);

inline constexpr double page_width = 800, left_edge = 88, right_edge = 772;

} // namespace amp::svg

// The pictures of the tools: magnitudes against the zones of number formats, rates over the loss scale, and lines.
//
// Hand-written SVG: inline CSS with dark mode and print rules, tooltips, text alternatives, patterns and line styles
// beside the colours (Okabe and Ito's palette), and the same bytes for the same figures.
#pragma once

#include <ampscope/formats/policy.h>
#include <ampscope/formats/spec.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace amp {

/// What becomes of magnitudes that are cast to a format, as limits in log2 of the magnitude: zero up to `subnormal`,
/// subnormal up to `normal`, normal up to `overflow`. If subnormals are flushed, subnormal == normal.
struct FormatZones {
    double subnormal, normal, overflow;
};

/// The zones for rounding to nearest or toward zero. Other roundings, whose limits depend on the sign, on chance or on
/// the last bit, are shown with the zones of nearest-even.
FormatZones zones_of(const FormatSpec& format, const Policy& policy = {});

/// A name for the zones: "nearest-even", "toward-zero, subnormals flushed", "up, drawn as nearest-even".
std::string zones_name(const Policy& policy);

/// Counts of elements by binade: exponents[e] counts 2^e <= |x| < 2^(e+1).
struct MagnitudeFigure {
    std::string title;
    std::map<int, std::uint64_t> exponents;
    std::uint64_t zero = 0, nan = 0, inf = 0;
    std::vector<FormatSpec> formats; ///< one band of zones for each
    Policy policy{};

    [[nodiscard]] std::uint64_t count() const;
};

/// The binades [first, last) that a picture shows: those of the data and the limits of every format of smaller range
/// than FP32, with some margin.
std::pair<int, int> binades_shown(const MagnitudeFigure& figure);

/// Rates among finite non-zero elements at the scales 2^first_log2, 2^(first_log2 + 1), ...
struct RateCurve {
    FormatSpec format;
    std::vector<double> underflow, overflow;   ///< 0 ... 1, of equal length
    std::optional<std::pair<int, int>> window; ///< log2 of the scales without overflow that lose less than the limit
    std::optional<int> recommended;            ///< log2 of the recommended scale
    bool known = true; ///< false: more may have underflowed before it was recorded, so that no window is known
};

struct RateFigure {
    std::string title;
    int first_log2 = 0;
    double limit = 0;              ///< limit for the underflow rate
    std::vector<RateCurve> curves; ///< one panel each, all of equal length
};

/// Values over steps (or another x). Points in the same pixel column are drawn as their range.
struct LineSeries {
    std::string name;
    std::vector<std::pair<double, double>> points; ///< (x, y), ascending in x; an infinite or NaN y interrupts the line
    std::vector<std::pair<double, double>> band{}; ///< least and greatest y of each point; empty: there is no band
    std::vector<double> marks{};                   ///< positions on x of the figure's marks
    bool holds = false;                            ///< a value holds until the next point, the last one until the end
    bool quiet = false;                            ///< a thin grey line for comparison
    bool apart = false;                            ///< each point a short bar: x only numbers them
};
struct LinePanel {
    std::string name, note; ///< heading of the panel; the note may be empty
    std::vector<LineSeries> series;
    std::optional<std::pair<double, double>> range{}; ///< a y axis of its own; none: that of the figure
};
struct LineFigure {
    std::string title, subtitle, x_label;
    std::string marks;   ///< meaning of the marks; empty: there are none
    bool log2_y = false; ///< y is the exponent of a power of two
    double first = 0, last = 1;
    std::optional<std::pair<double, double>>
        range{};                   ///< the y axis; values beyond are drawn at its ends; none: fits all
    double panel_height = 84;      ///< pixels
    std::vector<LinePanel> panels; ///< panels with the same x axis
};

/// Counts by powers of two, as shares of each panel's elements.
struct BarPanel {
    std::string name, note;
    std::map<int, std::uint64_t> bins; ///< counts by exponent
    std::uint64_t elements = 0;        ///< number of elements; those in bins are a part of it
};
struct BarFigure {
    std::string title, subtitle, x_label;
    std::vector<BarPanel> panels; ///< panels with the same axes
};

/// Shares in 0 ... 1 by row and column, drawn as shades. NaN means unknown and is left blank.
struct HeatRow {
    std::string name;
    std::string note; ///< its tooltip
    std::vector<double> values;
};
struct HeatFigure {
    std::string title, subtitle, x_label;
    std::vector<std::string> columns; ///< what is written below each column: where it begins
    std::vector<HeatRow> rows;
    std::vector<double> levels; ///< ascending, at most 5: the shade changes when a value reaches one
    /// Lines before the columns with these indices (ascending), and their meanings.
    std::vector<std::pair<std::size_t, std::string>> guides{};
};

/// Positive numbers by row, on a logarithmic axis: a dot for each series. 0 is drawn at the left end, infinity at the
/// right one, and NaN, which means unknown, not at all.
struct DotRow {
    std::string name;
    std::vector<double> values; ///< one for each series
};
struct DotFigure {
    std::string title, subtitle, x_label;
    std::vector<std::string> series;
    std::vector<DotRow> rows;
};

using Figure = std::variant<MagnitudeFigure, RateFigure, LineFigure, BarFigure, HeatFigure, DotFigure>;

/// One SVG document with the figures, one below the other; its title is that of the first. `id` is a prefix for the ids
/// of its elements.
std::string svg_document(const std::vector<Figure>& figures, const std::string& id = "amp");

/// For a page with several pictures: a picture without a style sheet, and the style sheet that all of them share, in an
/// SVG element of no size. The picture has its values in data attributes, for the script of the page.
std::string svg_fragment(const Figure& figure, const std::string& id);
std::string svg_definitions();

/// What the figure shows in words: its text alternative.
std::string description_of(const Figure& figure);

} // namespace amp

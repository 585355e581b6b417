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

/// What becomes of a magnitude cast to a format, by log2 of the magnitude: zero up to `subnormal`, subnormal up to
/// `normal`, normal up to `overflow`. Where subnormals are flushed subnormal == normal.
struct FormatZones {
    double subnormal, normal, overflow;
};

/// For rounding to nearest or toward zero; others, whose edges depend on sign or chance, have the zones of
/// nearest-even.
FormatZones zones_of(const FormatSpec& format, const Policy& policy = {});

/// Which of them they are: "nearest-even", "toward-zero, subnormals flushed".
std::string zones_name(const Policy& policy);

/// How many elements lie in each binade: exponents[e] counts 2^e <= |x| < 2^(e+1).
struct MagnitudeFigure {
    std::string title;
    std::map<int, std::uint64_t> exponents;
    std::uint64_t zero = 0, nan = 0, inf = 0;
    std::vector<FormatSpec> formats; ///< a band of zones each
    Policy policy{};

    [[nodiscard]] std::uint64_t count() const;
};

/// The binades [first, last) that a picture shows: those of the data, and the edges of every format that has fewer of
/// them than FP32, with a little room.
std::pair<int, int> binades_shown(const MagnitudeFigure& figure);

/// Rates of finite non-zero elements, at the scales 2^first_log2, 2^(first_log2 + 1), ...
struct RateCurve {
    FormatSpec format;
    std::vector<double> underflow, overflow; ///< 0 ... 1, equally long
    std::optional<std::pair<int, int>>
        window;                     ///< log2 of the scales that lose less than the limit and overflow nowhere
    std::optional<int> recommended; ///< log2
};

struct RateFigure {
    std::string title;
    int first_log2 = 0;
    double limit = 0;              ///< of the underflow rate
    std::vector<RateCurve> curves; ///< one panel each, all of the same length
};

/// Values over steps, or whatever x is. Points that share a pixel column are drawn as their range.
struct LineSeries {
    std::string name;
    std::vector<std::pair<double, double>> points; ///< ascending in x; y that is not finite interrupts the line
    std::vector<double> marks{};                   ///< where on x something happened that the figure's marks stand for
    bool holds = false;                            ///< a value lasts until the next point, and the last to the end
    bool quiet = false;                            ///< for comparison: a thin grey line
};
struct LinePanel {
    std::string name, note; ///< above it; the note may be empty
    std::vector<LineSeries> series;
};
struct LineFigure {
    std::string title, subtitle, x_label;
    std::string marks;   ///< what marks stand for; empty: none
    bool log2_y = false; ///< y is a power of two's exponent
    double first = 0, last = 1;
    double panel_height = 84;      ///< pixels
    std::vector<LinePanel> panels; ///< with the same axes
};

/// Counts by powers of two, as shares of each panel's elements.
struct BarPanel {
    std::string name, note;
    std::map<int, std::uint64_t> bins; ///< by exponent
    std::uint64_t elements = 0;        ///< of which the bins are a part
};
struct BarFigure {
    std::string title, subtitle, x_label;
    std::vector<BarPanel> panels; ///< with the same axes
};

/// Shares of 0 ... 1 by row and column, as shades. NaN: not known, and left out.
struct HeatRow {
    std::string name;
    std::string note; ///< its tooltip
    std::vector<double> values;
};
struct HeatFigure {
    std::string title, subtitle, x_label;
    std::vector<std::string> columns; ///< what each begins at
    std::vector<HeatRow> rows;
    std::vector<double> levels; ///< ascending, at most 5: the shades change where a value reaches them
    /// Lines before the columns of these ascending indices, with what they mean.
    std::vector<std::pair<std::size_t, std::string>> guides{};
};

using Figure = std::variant<MagnitudeFigure, RateFigure, LineFigure, BarFigure, HeatFigure>;

/// One SVG document with the figures, one under the other; its title is the first one's. `id` prefixes the document's
/// element ids.
std::string svg_document(const std::vector<Figure>& figures, const std::string& id = "amp");

/// For a page of several pictures: one without a style sheet of its own, and the style sheet that all of them share, as
/// an SVG element that takes no room.
std::string svg_fragment(const Figure& figure, const std::string& id);
std::string svg_definitions();

/// What the figure shows, in words: its text alternative.
std::string description_of(const Figure& figure);

} // namespace amp

#include <ampscope/tools/chart/chart.h>

#include <ampscope/sim/base/text.h>
#include <ampscope/tools/chart/figure.h>

#include <ampscope/formats/codec.h>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

namespace amp {

namespace {

/// The rounding whose zones are drawn.
Rounding drawn(Rounding rounding) {
    switch (rounding) {
    case Rounding::nearest_even:
    case Rounding::nearest_away:
    case Rounding::toward_zero: return rounding;
    case Rounding::down:
    case Rounding::up:
    case Rounding::to_odd:
    case Rounding::stochastic: break;
    }
    return Rounding::nearest_even;
}

/// The name of the enumerator as words: "toward-zero".
std::string words_of(Rounding rounding) {
    std::string name(name_of(rounding));
    std::ranges::replace(name, '_', '-');
    return name;
}

} // namespace

FormatZones zones_of(const FormatSpec& f, const Policy& policy) {
    // The part of a step between neighbouring values whose numbers go down.
    const double part = drawn(policy.rounding) == Rounding::toward_zero ? 1 : 0.5;
    const double unit = std::ldexp(1.0, f.min_subnormal_exponent());
    const double max = decode(f, f.max_code());
    const double last_ulp = std::ldexp(1.0, f.max_exponent() - f.precision() + 1);
    FormatZones zones{std::log2(unit * part), std::log2(std::ldexp(1.0, f.min_exponent()) - unit * (1 - part)),
                      std::log2(max + last_ulp * part)};
    if (policy.flushes_output()) zones.subnormal = zones.normal;
    return zones;
}

std::string zones_name(const Policy& policy) {
    std::string name = words_of(policy.rounding);
    const Rounding zones = drawn(policy.rounding);
    if (zones != policy.rounding) name += ", drawn as " + words_of(zones);
    return policy.flushes_output() ? name + ", subnormals flushed" : name;
}

std::uint64_t MagnitudeFigure::count() const {
    return std::accumulate(exponents.begin(), exponents.end(), zero + nan + inf,
                           [](std::uint64_t sum, const auto& bin) { return sum + bin.second; });
}

std::pair<int, int> binades_shown(const MagnitudeFigure& figure) {
    int from = 1'000'000, to = -1'000'000;
    if (!figure.exponents.empty()) {
        from = figure.exponents.begin()->first;
        to = figure.exponents.rbegin()->first + 1;
    }
    for (const FormatSpec& format : figure.formats) {
        if (format.exponent_bits >= 8) continue;
        const FormatZones zones = zones_of(format, figure.policy);
        from = std::min(from, static_cast<int>(zones.subnormal) - 3);
        to = std::max(to, static_cast<int>(std::ceil(zones.overflow)) + 3);
    }
    if (from >= to) return {-20, 4};
    return {from - 1, to + 1};
}

namespace svg {

double tick_step(double range, int ticks) {
    const double least = range / ticks;
    const double decade = std::pow(10.0, std::floor(std::log10(least)));
    for (const double factor : {1.0, 2.0, 5.0})
        if (factor * decade >= least * (1 - 1e-9)) return factor * decade;
    return 10 * decade;
}

std::string power_label(int log2) {
    constexpr std::array<std::string_view, 10> digits = {"⁰", "¹", "²", "³", "⁴", "⁵", "⁶", "⁷", "⁸", "⁹"};
    if (log2 == 0) return "1";
    std::string out = "2";
    for (const char c : std::to_string(log2)) out += c == '-' ? "⁻" : digits[static_cast<std::size_t>(c - '0')];
    return out;
}

std::string plot_data(const Scale& x, const Scale& y) {
    return fmt::format("{:.12g} {:.12g} {} {} {:.12g} {:.12g} {} {}", x.from, x.to, number(x.begin), number(x.end),
                       y.from, y.to, number(y.begin), number(y.end));
}

std::string panel_label(const std::string& name, const std::string& note) {
    return note.empty() ? name : name + ": " + note;
}

void open_key(Canvas& canvas, const std::string& key, const LegendPlace& at) {
    canvas.open_data({{"key", key}});
    if (canvas.is_live() && !key.empty()) canvas.rect(at.x - 4, at.y - 13, at.text_width + 38, 18, "hit");
}

void draw_title(Canvas& canvas, const std::string& title, const std::string& subtitle, double y) {
    canvas.text(16, y + 20, "title", Anchor::start, clipped(printable(title), 82));
    canvas.text(16, y + 38, "quiet", Anchor::start, clipped(printable(subtitle), 124));
}

void draw_heading(Canvas& canvas, const std::string& name, const std::string& note, double y) {
    const std::string shown = clipped(printable(name), 44);
    canvas.text(16, y, "mono", Anchor::start, shown);
    const double note_at = std::max(left_edge, 16 + 8.0 * static_cast<double>(width(shown)) + 12);
    const auto room = static_cast<std::size_t>((right_edge - note_at) / 6.2);
    canvas.text(note_at, y, "quiet", Anchor::start, clipped(printable(note), room));
}

// librsvg knows no CSS variables, so each mode states its colours. `#ID` stands for the id prefix.
std::string definitions(const std::string& id) {
    constexpr std::string_view text = R"(<style>
.amp-chart{font-family:system-ui,"Segoe UI","DejaVu Sans",sans-serif;font-size:12px}
.amp-chart .page{fill:#fff}
.amp-chart text{fill:#1b1f24}
.amp-chart .title{font-size:15px;font-weight:600}
.amp-chart .quiet{fill:#57606a}
.amp-chart .small{font-size:11px}
.amp-chart .mono{font-weight:600}
.amp-chart .on-band{font-size:11px;fill:#1b1f24;stroke:#fff;stroke-width:3px;stroke-linejoin:round;paint-order:stroke}
.amp-chart .bar{fill:#0072b2}
.amp-chart .special{fill:#57606a}
.amp-chart .axis{stroke:#57606a;stroke-width:1;fill:none}
.amp-chart .grid{stroke:#d8dee4;stroke-width:1}
.amp-chart .break{stroke:#fff;stroke-width:3;fill:none}
.amp-chart .frame{fill:none;stroke:#8c959f;stroke-width:1}
.amp-chart .zone-zero{fill:url(##ID-zero)}
.amp-chart .zone-subnormal{fill:url(##ID-subnormal)}
.amp-chart .zone-normal{fill:#cfe8dd}
.amp-chart .zone-overflow{fill:url(##ID-overflow)}
.amp-chart .band{fill:#888;fill-opacity:.3}
.amp-chart .window{fill:#009e73;fill-opacity:.22}
.amp-chart .window-edge{stroke:#009e73;stroke-width:1}
.amp-chart .underflow{stroke:#d55e00;stroke-width:2;fill:none;stroke-linejoin:round}
.amp-chart .overflow{stroke:#9b4f96;stroke-width:2;fill:none;stroke-dasharray:6 3;stroke-linejoin:round}
.amp-chart .limit{stroke:#57606a;stroke-width:1;stroke-dasharray:2 3}
.amp-chart .recommended{stroke:#1b1f24;stroke-width:2}
.amp-chart .pointer{fill:#1b1f24}
.amp-chart .series{stroke-width:2;fill:none;stroke-linejoin:round}
.amp-chart .series-0{stroke:#0072b2}.amp-chart .series-1{stroke:#d55e00;stroke-dasharray:7 3}.amp-chart .series-2{stroke:#009e73;stroke-dasharray:2 3}.amp-chart .series-3{stroke:#9b4f96;stroke-dasharray:9 3 2 3}.amp-chart .series-4{stroke:#b87d00;stroke-dasharray:12 4}.amp-chart .series-5{stroke:#56b4e9;stroke-dasharray:4 2}.amp-chart .series-6{stroke:#1b1f24;stroke-dasharray:1 4}.amp-chart .series-7{stroke:#0072b2;stroke-dasharray:3 2}.amp-chart .series-8{stroke:#d55e00;stroke-dasharray:16 3}.amp-chart .series-9{stroke:#009e73;stroke-dasharray:10 2 2 2 2 2}.amp-chart .series-10{stroke:#9b4f96}.amp-chart .series-11{stroke:#b87d00;stroke-dasharray:2 2}.amp-chart .series-12{stroke:#56b4e9;stroke-dasharray:14 3 2 3}.amp-chart .series-13{stroke:#1b1f24}
.amp-chart .compare{stroke:#8c959f;stroke-width:1;fill:none}
.amp-chart .mark{fill:#d55e00}
.amp-chart .hit{fill:#888;fill-opacity:0}
.amp-chart .hit:hover{fill-opacity:.25}
.amp-chart .heat-0{fill:#eef1f4}.amp-chart .heat-1{fill:#fde3b8}.amp-chart .heat-2{fill:#fdbb6b}.amp-chart .heat-3{fill:#ee7d2f}.amp-chart .heat-4{fill:#b73a0c}.amp-chart .heat-5{fill:#5c1600}
.amp-chart .guide{stroke:#0072b2;stroke-width:1.5;stroke-dasharray:4 3}
.amp-chart .tile-zero{fill:#f3b48f}.amp-chart .ink-zero{stroke:#a84600;stroke-width:1.2}
.amp-chart .tile-subnormal{fill:#fbe3ad}.amp-chart .ink-subnormal{stroke:#b87d00;stroke-width:1.2}
.amp-chart .tile-overflow{fill:#e4c3df}.amp-chart .ink-overflow{fill:#7d3a78}
@media (prefers-color-scheme:dark){
.amp-chart .page{fill:#0d1117}
.amp-chart text{fill:#e6edf3}
.amp-chart .quiet{fill:#9aa4af}
.amp-chart .on-band{fill:#fff;stroke:#0d1117}
.amp-chart .bar{fill:#56b4e9}
.amp-chart .special{fill:#9aa4af}
.amp-chart .axis{stroke:#9aa4af}
.amp-chart .grid{stroke:#272e38}
.amp-chart .break{stroke:#0d1117}
.amp-chart .zone-normal{fill:#12513d}
.amp-chart .underflow{stroke:#f58a3c}
.amp-chart .overflow{stroke:#d79bd2}
.amp-chart .limit{stroke:#9aa4af}
.amp-chart .recommended{stroke:#e6edf3}
.amp-chart .pointer{fill:#e6edf3}
.amp-chart .series-0{stroke:#56b4e9}.amp-chart .series-1{stroke:#f58a3c}.amp-chart .series-2{stroke:#2fc49a}.amp-chart .series-3{stroke:#d79bd2}.amp-chart .series-4{stroke:#e6b800}.amp-chart .series-5{stroke:#9bd3f5}.amp-chart .series-6{stroke:#e6edf3}.amp-chart .series-7{stroke:#56b4e9}.amp-chart .series-8{stroke:#f58a3c}.amp-chart .series-9{stroke:#2fc49a}.amp-chart .series-10{stroke:#d79bd2}.amp-chart .series-11{stroke:#e6b800}.amp-chart .series-12{stroke:#9bd3f5}.amp-chart .series-13{stroke:#e6edf3}
.amp-chart .mark{fill:#f58a3c}
.amp-chart .heat-0{fill:#1c232c}.amp-chart .heat-1{fill:#4a2508}.amp-chart .heat-2{fill:#853d0a}.amp-chart .heat-3{fill:#c9620f}.amp-chart .heat-4{fill:#f79c42}.amp-chart .heat-5{fill:#ffe0b0}
.amp-chart .guide{stroke:#56b4e9}
.amp-chart .tile-zero{fill:#6b2d08}.amp-chart .ink-zero{stroke:#f58a3c}
.amp-chart .tile-subnormal{fill:#574108}.amp-chart .ink-subnormal{stroke:#e69f00}
.amp-chart .tile-overflow{fill:#4f2a4c}.amp-chart .ink-overflow{fill:#d79bd2}
}
@media print{
.amp-chart .page{fill:#fff}
.amp-chart text,.amp-chart .quiet,.amp-chart .pointer{fill:#000}
.amp-chart .on-band{fill:#000;stroke:#fff}
.amp-chart .bar{fill:#444}
.amp-chart .special{fill:#888}
.amp-chart .axis,.amp-chart .limit,.amp-chart .recommended,.amp-chart .underflow,.amp-chart .overflow{stroke:#000}
.amp-chart .grid{stroke:#ccc}
.amp-chart .series{stroke:#000}
.amp-chart .mark{fill:#000}
.amp-chart .break{stroke:#fff}
.amp-chart .zone-normal{fill:#fff}
.amp-chart .tile-zero,.amp-chart .tile-subnormal,.amp-chart .tile-overflow{fill:#fff}
.amp-chart .ink-zero,.amp-chart .ink-subnormal{stroke:#555}
.amp-chart .ink-overflow{fill:#555}
}
</style>
<defs>
<pattern id="#ID-zero" width="6" height="6" patternUnits="userSpaceOnUse"><rect class="tile-zero" width="6" height="6"/><path class="ink-zero" d="M0 0L6 6M6 0L0 6"/></pattern>
<pattern id="#ID-subnormal" width="7" height="7" patternUnits="userSpaceOnUse"><rect class="tile-subnormal" width="7" height="7"/><path class="ink-subnormal" d="M-1 1L1 -1M0 7L7 0M6 8L8 6"/></pattern>
<pattern id="#ID-overflow" width="5" height="5" patternUnits="userSpaceOnUse"><rect class="tile-overflow" width="5" height="5"/><circle class="ink-overflow" cx="2.5" cy="2.5" r="1.1"/></pattern>
</defs>
)";
    std::string out(text);
    for (std::size_t at = 0; (at = out.find("#ID", at)) != std::string::npos;) out.replace(at, 3, escaped(id));
    return out;
}

} // namespace svg

std::string description_of(const Figure& figure) {
    return std::visit([](const auto& f) { return svg::description(f); }, figure);
}

std::string svg_definitions() {
    return fmt::format("<svg class=\"amp-chart\" width=\"0\" height=\"0\" aria-hidden=\"true\">\n{}</svg>\n",
                       svg::definitions("amp"));
}

std::string svg_fragment(const Figure& figure, const std::string& id) {
    return std::visit(
        [&](const auto& f) {
            svg::Canvas canvas(svg::page_width, svg::draw(nullptr, f, 0), true);
            svg::draw(&canvas, f, 0);
            return canvas.document(id, f.title, svg::description(f), "");
        },
        figure);
}

std::string svg_document(const std::vector<Figure>& figures, const std::string& id) {
    constexpr double gap = 28;
    std::vector<double> tops;
    double height = 0;
    std::string title, description;
    for (const Figure& figure : figures) {
        if (!tops.empty()) height += gap;
        tops.push_back(height);
        std::visit(
            [&](const auto& f) {
                height += svg::draw(nullptr, f, 0);
                if (title.empty()) title = f.title;
                description += (description.empty() ? "" : " ") + svg::description(f);
            },
            figure);
    }
    svg::Canvas canvas(svg::page_width, height);
    canvas.rect(0, 0, svg::page_width, height, "page");
    for (std::size_t i = 0; i < figures.size(); ++i)
        std::visit([&](const auto& f) { svg::draw(&canvas, f, tops[i]); }, figures[i]);
    return canvas.document(id, title, description, svg::definitions(id));
}

} // namespace amp

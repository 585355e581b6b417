// Charts and wording: rates that are never misleading, names from hostile files, zones that match the codec's rounding,
// well-formed SVG.
#include <ampscope/formats/codec.h>
#include <ampscope/sim/base/text.h>
#include <ampscope/tools/chart/chart.h>
#include <ampscope/tools/chart/svg.h>
#include <ampscope/tools/chart/terminal.h>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <sstream>

using namespace amp;

TEST_CASE("a percentage is 0 or 100 only where nothing or everything is meant") {
    CHECK(percent(0, 10) == "0 %");
    CHECK(percent(10, 10) == "100 %");
    CHECK(percent(0, 0) == "-");
    CHECK(percent(124, 1000) == "12.4 %");
    CHECK(limit_percent(0.001) == "0.1 %");
    CHECK(limit_percent(0.01) == "1 %");
    CHECK(percent(1, 3200) == "0.0312 %");
    CHECK(percent(1, 3'200'000) == "3.1e-05 %");
    CHECK(percent(999'999'999, 1'000'000'000) == "99.9999999 %");
    std::mt19937_64 random(1);
    for (int i = 0; i < 100'000; ++i) {
        const std::uint64_t whole = (random() >> (random() % 60)) + 2, part = 1 + random() % (whole - 1);
        const std::string text = percent(part, whole);
        const double shown = std::stod(text), rate = 100 * static_cast<double>(part) / static_cast<double>(whole);
        CAPTURE(text);
        REQUIRE(shown > 0);
        REQUIRE(std::abs(shown - rate) <= 0.05 * rate);
        if (whole < 1'000'000'000'000) REQUIRE(shown < 100);
    }
}

TEST_CASE("counts and powers") {
    CHECK(grouped(0) == "0");
    CHECK(grouped(999) == "999");
    CHECK(grouped(1234567) == "1,234,567");
    CHECK(plural(1, "tensor") == "1 tensor");
    CHECK(plural(0, "tensor") == "0 tensors");
    CHECK(plural(1234, "tensor") == "1,234 tensors");
    CHECK(short_count(999) == "999");
    CHECK(short_count(12345) == "12.3k");
    CHECK(short_count(999'499) == "999k");
    CHECK(short_count(999'500) == "1.00M");
    CHECK(short_count(~0ULL) == "18.4E");
    CHECK(power_of_two(0) == "1");
    CHECK(power_of_two(-3) == "2^-3");
    CHECK(svg::number(-0.001) == "0");
    CHECK(svg::number(1.5) == "1.5");
    CHECK(svg::number(100) == "100");
}

TEST_CASE("JSON stays what it is, and hides nothing") {
    const std::string json = "{\n \"a\u202e\u00ad\U000e0041\x7f\": \"größe\"\n}";
    CHECK(printable_json(json) == "{\n \"a\\u202e\\u00ad\\udb40\\udc41\\u007f\": \"größe\"\n}");
    CHECK(nlohmann::json::parse(printable_json(json)) == nlohmann::json::parse(json));
}

TEST_CASE("text cells of a CSV are no formulas") {
    CHECK(csv_cell("h.0.weight") == "h.0.weight");
    for (const std::string formula : {"=1+1", "+1", "-1", "@SUM(A1)"}) CHECK(csv_cell(formula) == "'" + formula);
    CHECK(csv_cell("=HYPERLINK(\"x\",1)") == "\"'=HYPERLINK(\"\"x\"\",1)\"");
    CHECK(csv_cell("a=b") == "a=b");
    CHECK(csv_cell("a,b") == "\"a,b\"");
    CHECK(csv_cell("\t=1") == "\xef\xbf\xbd=1");
    CHECK(csv_cell("a\r\nb") == "a\xef\xbf\xbd\xef\xbf\xbd"
                                "b");
    CHECK(csv_cell("").empty());
}

TEST_CASE("names of unknown origin become printable") {
    CHECK(printable("h.0.größe") == "h.0.größe");
    CHECK(printable("\x1b[31m") == "\xef\xbf\xbd[31m");
    CHECK(printable("a\n\x7f") == "a\xef\xbf\xbd\xef\xbf\xbd");
    CHECK(printable("\xc0\x80") == "\xef\xbf\xbd\xef\xbf\xbd");         // overlong NUL
    CHECK(printable("\xed\xa0\x80").find('\xed') == std::string::npos); // a surrogate
    CHECK(printable("\xc2\x9b") == "\xef\xbf\xbd");                     // C1 control: CSI
    CHECK(printable("\xf0\x9f\x98\x80") == "\xf0\x9f\x98\x80");
    CHECK(printable("\xf0\x9f\x98") == "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
    CHECK(svg::escaped("<a href='x'>&\"") == "&lt;a href=&#39;x&#39;&gt;&amp;&quot;");
    CHECK(clipped("größe.weight", 7) == "grö…ght");
    CHECK(clipped("short", 5) == "short");
    CHECK(width(clipped(std::string(500, 'x'), 30)) == 30);
}

TEST_CASE("zones meet where the codec rounds to zero, to the first normal value, beyond the last") {
    for (const FormatSpec& format : formats) {
        if (format.is_scale()) continue;
        const FormatZones zones = zones_of(format);
        CAPTURE(format.name);
        const auto magnitude = [&](double log2) { return encode(format, std::exp2(log2)) & format.magnitude_mask(); };
        const auto overflows = [&](double log2) {
            Flags flags;
            encode(format, std::exp2(log2), {}, 0, flags);
            return flags.test(Flags::overflow);
        };
        constexpr double step = 1e-9; // the edges themselves are ties, which figures need not resolve
        CHECK(magnitude(zones.subnormal - step) == 0);
        CHECK(magnitude(zones.subnormal + step) == 1);
        CHECK(magnitude(zones.normal - step) < format.min_normal_code());
        CHECK(magnitude(zones.normal + step) >= format.min_normal_code());
        CHECK_FALSE(overflows(zones.overflow - step));
        CHECK(overflows(zones.overflow + step));
    }
}

TEST_CASE("zones of truncation and of flushed subnormals") {
    for (const FormatSpec& format : formats) {
        if (format.is_scale()) continue;
        CAPTURE(format.name);
        const Policy truncated{.rounding = Rounding::toward_zero}, flushed{.subnormals = Subnormals::flush_output};
        constexpr double step = 1e-9;
        const auto code = [&](double log2, const Policy& policy, bool& overflows) {
            Flags flags;
            const std::uint32_t bits = encode(format, std::exp2(log2), policy, 0, flags) & format.magnitude_mask();
            overflows = flags.test(Flags::overflow);
            return bits;
        };
        bool over = false;
        const FormatZones zones = zones_of(format, truncated), gone = zones_of(format, flushed);
        CHECK(code(zones.subnormal - step, truncated, over) == 0);
        CHECK(code(zones.subnormal + step, truncated, over) == 1);
        CHECK(code(zones.normal - step, truncated, over) < format.min_normal_code());
        CHECK(code(zones.normal + step, truncated, over) >= format.min_normal_code());
        code(zones.overflow - step, truncated, over);
        CHECK(!over);
        code(zones.overflow + step, truncated, over);
        CHECK(over);
        CHECK(gone.subnormal == gone.normal);
        CHECK(code(gone.normal - step, flushed, over) == 0);
        CHECK(code(gone.normal + step, flushed, over) >= format.min_normal_code());
        CHECK(gone.overflow == zones_of(format).overflow);
    }
    CHECK(zones_name({}) == "nearest-even");
    CHECK(zones_name({.rounding = Rounding::stochastic, .subnormals = Subnormals::flush}) ==
          "stochastic, drawn as nearest-even, subnormals flushed");
    CHECK(zones_name({.rounding = Rounding::to_odd}) == "to-odd, drawn as nearest-even");
    for (const Rounding rounding : {Rounding::down, Rounding::up, Rounding::to_odd, Rounding::stochastic})
        CHECK(zones_of(format("fp16"), {.rounding = rounding}).subnormal == zones_of(format("fp16")).subnormal);
}

namespace {

MagnitudeFigure magnitudes(int first, int last) {
    MagnitudeFigure figure{
        "a <b> & \"c\" \x1b", {}, 5000, 2, 1, {format("fp16"), format("bf16"), format("e4m3fnuz"), format("e2m1")}};
    for (int e = first; e <= last; ++e) figure.exponents[e] = static_cast<std::uint64_t>(1 + (e - first) * (last - e));
    return figure;
}

RateFigure rates() {
    return {"rates",
            -8,
            0.001,
            {{format("fp16"), {0.5, 0.1, 0.001, 0, 0}, {0, 0, 0, 1e-9, 1}, std::pair{-6, -6}, -6},
             {format("e4m3"), {1, 1, 1, 1, 1}, {0, 0, 0, 0, 0}, std::nullopt, std::nullopt}}};
}

/// Checks that elements are closed in order, attributes quoted, and texts free of markup. Returns the number of
/// elements.
int check_well_formed(const std::string& xml) {
    std::vector<std::string> open;
    int elements = 0;
    for (std::size_t at = 0; (at = xml.find('<', at)) != std::string::npos;) {
        const std::size_t end = xml.find('>', at);
        REQUIRE(end != std::string::npos);
        std::string tag = xml.substr(at + 1, end - at - 1);
        REQUIRE(tag.find('<') == std::string::npos);
        REQUIRE(std::count(tag.begin(), tag.end(), '"') % 2 == 0);
        const std::string name = tag.substr(0, tag.find_first_of(" /", 1));
        if (tag.starts_with('/')) {
            REQUIRE(!open.empty());
            REQUIRE(open.back() == tag.substr(1));
            open.pop_back();
        } else {
            ++elements;
            if (!tag.ends_with('/')) open.push_back(name);
        }
        at = end;
    }
    REQUIRE(open.empty());
    return elements;
}

} // namespace

TEST_CASE("the SVG is well-formed, self-contained and always the same bytes") {
    const std::string document = svg_document({magnitudes(-40, 3), rates()});
    CHECK(document == svg_document({magnitudes(-40, 3), rates()}));
    CHECK(check_well_formed(document) > 100);
    CHECK(document.find("a &lt;b&gt; &amp; &quot;c&quot; \xef\xbf\xbd") != std::string::npos);
    for (const char* needed : {"role=\"img\"", "<desc id=", "<title>", "prefers-color-scheme:dark", "@media print",
                               ">NaN<", ">inf<", "url(#amp-zero)"})
        CHECK_MESSAGE(document.find(needed) != std::string::npos, needed);
    for (const char* forbidden : {"<script", "href", "@import", "nan\"", "inf\"", "#ID"})
        CHECK_MESSAGE(document.find(forbidden) == std::string::npos, forbidden);
    CHECK(svg_document({magnitudes(-40, 3), rates()}, "second").find("url(#second-zero)") != std::string::npos);
}

TEST_CASE("figures of nothing, of one binade and of every binade of FP64 are drawn") {
    const MagnitudeFigure nothing{"", {}, 0, 0, 0, {}};
    const MagnitudeFigure zeros{"zeros", {}, 7, 0, 0, {format("fp16")}};
    for (const MagnitudeFigure& figure : {nothing, zeros, magnitudes(-3, -3), magnitudes(-1074, 1023)}) {
        const std::string document = svg_document({figure, RateFigure{"", 0, 0, {}}});
        check_well_formed(document);
        CHECK(document.find("nan\"") == std::string::npos);
        CHECK(!magnitude_text(figure, false).empty());
    }
}

TEST_CASE("every bar and every band lies inside the picture") {
    const std::string document = svg_document({magnitudes(-149, 127), rates()});
    for (std::size_t at = 0; (at = document.find("<rect class=\"", at)) != std::string::npos; ++at) {
        double x = 0, y = 0, w = 0, h = 0;
        char css[32];
        if (std::sscanf(document.c_str() + at, R"(<rect class="%31[^"]" x="%lf" y="%lf" width="%lf" height="%lf")", css,
                        &x, &y, &w, &h) != 5)
            continue;
        REQUIRE(w >= 0);
        REQUIRE(h >= 0);
        REQUIRE(x >= 0);
        REQUIRE(x + w <= 800.01);
    }
}

TEST_CASE("text output keeps to 80 columns and to plain characters where colour is not wanted") {
    const std::string text = magnitude_text(magnitudes(-149, 127), false) + magnitude_text(magnitudes(-20, 2), false) +
                             wrapped(std::string(60, 'a') + " " + std::string(60, 'b') + " c", 4);
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        CAPTURE(line);
        CHECK(width(line) <= 80);
        CHECK(line.find('\x1b') == std::string::npos);
    }
    CHECK(wrapped(std::string(76, 'a') + " 12 % b") == std::string(76, 'a') + "\n12 % b\n");
    CHECK(magnitude_text(magnitudes(-20, 2), true).find("\x1b[31m0") != std::string::npos);
}

TEST_CASE("the zones of the terminal stand under their binades") {
    MagnitudeFigure figure{"", {{-30, 1}}, 0, 0, 0, {format("fp16")}};
    const std::string text = magnitude_text(figure, false);
    std::istringstream lines(text);
    std::string bars, zones;
    for (std::string line; std::getline(lines, line);) {
        if (line.find("█") != std::string::npos) bars = line;
        if (line.starts_with("       fp16")) zones = line;
    }
    // The shown domain starts below 2^-30; fp16 values are subnormal from 2^-25 and normal from 2^-14, and end with
    // binade 15.
    const std::size_t bar = width(bars.substr(0, bars.find("█")));
    CHECK(zones.find('s') == bar + 5);
    CHECK(zones.find('-') == bar + 16);
    CHECK(zones.find('!') == bar + 46);
}

namespace {

/// One panel with a long line, a gap, a line that is held to the end, and one line for comparison.
LineFigure lines(int points) {
    LineFigure figure{.title = "a <b>",
                      .subtitle = "below",
                      .x_label = "step",
                      .marks = "skipped",
                      .log2_y = true,
                      .first = 0,
                      .last = static_cast<double>(points),
                      .panels = {{.name = "<script>", .note = "n & m", .series = {}}}};
    LineSeries noisy{.name = "noisy", .points = {}}, held{.name = "held", .points = {{0, 16}, {2, 15}}};
    for (int i = 0; i < points; ++i) noisy.points.emplace_back(i, i == points / 2 ? std::nan("") : i % 7);
    noisy.marks = {1, 2, 3, static_cast<double>(points)};
    held.holds = held.quiet = true;
    figure.panels.front().series = {noisy, held};
    return figure;
}

std::size_t occurrences(const std::string& text, std::string_view part) {
    std::size_t n = 0;
    for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++n;
    return n;
}

} // namespace

TEST_CASE("lines: every value is in range, gaps interrupt, a million points stay small") {
    const std::string few = svg_document({lines(40)}), many = svg_document({lines(1'000'000)});
    for (const std::string& document : {few, many}) {
        check_well_formed(document);
        CHECK(document.find("nan") == std::string::npos);
        CHECK(document.find("<script>") == std::string::npos);
        CHECK(document.find("&lt;script&gt;: n &amp; m") != std::string::npos);
        CHECK(document.size() < 200'000);
        CHECK(document.find("<path class=\"compare\" d=\"M88") != std::string::npos); // begins at the left edge
        CHECK(document.find(">2\xc2\xb9\xe2\x81\xb0<") != std::string::npos);         // a tick at 2^10
    }
    // A held line ends at the right edge; after a gap a second stroke begins; of adjacent marks one is drawn.
    CHECK(few.find("H772\"><title>held") != std::string::npos);
    const std::size_t at = few.find("<path class=\"series series-0\"");
    REQUIRE(at != std::string::npos);
    CHECK(occurrences(few.substr(at, few.find('>', at) - at), "M") == 2);
    CHECK(occurrences(many, "class=\"mark\"") == 3); // the first, the last, and the legend's
    CHECK(occurrences(few, "class=\"mark\"") == 5);
    const LineFigure nothing{
        .title = "", .subtitle = "", .x_label = "", .marks = {}, .panels = {{.name = "p", .note = {}, .series = {}}}};
    check_well_formed(svg_document({nothing}));
}

TEST_CASE("powers of two in words have exponents that one can read") {
    LineFigure figure = lines(1);
    figure.panels.front().series = {{.name = "s", .points = {{0, 4.72e-8}, {1, -6.4e-8}}},
                                    {.name = "t", .points = {{0, -0.1312}, {1, 17}}}};
    const std::string text = description_of(figure);
    CHECK(text.find("s from 2^0 to 2^0, t from 2^-0.131 to 2^17.") != std::string::npos);
}

TEST_CASE("a page's script finds the values of lines, and their entries of the legend") {
    LineFigure figure = lines(40);
    figure.panels.front().series.front().name = "\"><script>";
    figure.panels.front().series.push_back(
        {.name = "second", .points = {{0, 3.25}, {8, 4}}, .band = {{3, 4}, {3.5, INFINITY}}});
    const std::string svg = svg_fragment(figure, "x");
    check_well_formed(svg);
    CHECK(svg.find("<script>") == std::string::npos);
    for (const char* part :
         {R"(data-plot="0 40 88 772 -1 17 )", // its axes, in values and pixels
          R"(data-unit="log2" data-x="step")", R"(data-k="0" data-n="&quot;&gt;&lt;script&gt;" data-p="[[0,0],[1,1],)",
          "[19,5],0,[21,0],", // the gap in its middle
          R"(data-k="1" data-n="second" data-p="[[0,3.25,3,4],[8,4,3.5,null]]")",
          R"(data-k="quiet" data-n="held" data-holds="1" data-p="[[0,16],[2,15]]")", R"(data-key="0")",
          R"(data-key="1")", R"(data-key="quiet")"})
        CHECK_MESSAGE(occurrences(svg, part) == 1, part);
    CHECK(svg_fragment(lines(1'000'000), "x").size() < 400'000);
}

TEST_CASE("lines may switch to a logarithmic axis where it shows more") {
    const auto may = [](std::vector<std::pair<double, double>> points, bool log2_y = false) {
        LineFigure figure = lines(1);
        figure.log2_y = log2_y;
        figure.panels.front().series = {{.name = "s", .points = std::move(points)}};
        return svg_fragment(figure, "x").find("data-log") != std::string::npos;
    };
    CHECK(may({{0, 4}, {1, 0.5}, {2, NAN}}));
    CHECK(may({{0, 4}, {1, 0}, {2, 0.5}}));
    CHECK_FALSE(may({{0, 4}, {1, 3.5}}));
    CHECK_FALSE(may({{0, 4}, {1, -0.5}}));
    CHECK_FALSE(may({{0, 4}, {1, 0.5}}, true)); // it is one
    CHECK_FALSE(may({{0, 0}}));
}

TEST_CASE("a page's script finds rates over the loss scale") {
    const std::string svg = svg_fragment(rates(), "x");
    check_well_formed(svg);
    CHECK(occurrences(svg, R"(data-unit="share" data-x="loss scale" data-xunit="log2")") == 2);
    CHECK(occurrences(svg, R"(data-n="underflow" data-p="[[-8,0.5],[-7,0.1],[-6,0.001],[-5,0],[-4,0]]")") == 1);
    CHECK(occurrences(svg, R"(data-k="overflow")") == 2); // in each panel
    CHECK(occurrences(svg, R"(data-key="overflow")") == 1);
}

TEST_CASE("bars: one for each bin, the highest as high as the panel") {
    const BarFigure figure{.title = "bars",
                           .subtitle = "",
                           .x_label = "ulps",
                           .panels = {{.name = "a", .note = "b", .bins = {{-3, 10}, {0, 40}, {5, 1}}, .elements = 80},
                                      {.name = "none", .note = {}, .bins = {}, .elements = 0}}};
    const std::string document = svg_document({figure, rates()});
    check_well_formed(document);
    CHECK(occurrences(document, "<rect class=\"bar\"") == 3);
    CHECK(document.find("height=\"64\"><title>1: 40 (50.0 %)") != std::string::npos);
    CHECK(document.find("height=\"16\"><title>2\xe2\x81\xbb\xc2\xb3: 10 (12.5 %)") != std::string::npos);
    check_well_formed(svg_document({BarFigure{.title = "", .subtitle = "", .x_label = "", .panels = {}}}));
}

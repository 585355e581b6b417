// Documents: text that stays text, in HTML, in Markdown and in a terminal; heat maps whose cells have the right shade;
// hashes.
#include "io_files.h"

#include <ampscope/sim/base/text.h>
#include <ampscope/sim/io/provenance.h>
#include <ampscope/tools/document/document.h>

#include <doctest/doctest.h>

#include <cmath>
#include <fstream>
#include <regex>

using namespace amp;
using namespace amp::test;

namespace {

bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

std::size_t count(const std::string& text, std::string_view part) {
    std::size_t n = 0;
    for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++n;
    return n;
}

HeatFigure heat_map() {
    return {.title = "Heat",
            .subtitle = "",
            .x_label = "step",
            .columns = {"0", "10", "20", "30"},
            .rows = {{"a", "first", {0, 0.001, 0.0099, 0.01}}, {"b", "", {0.95, std::nan(""), 1, 0.9}}},
            .levels = {0.001, 0.01, 0.1, 0.5, 0.9},
            .guides = {{1, "here"}}};
}

} // namespace

TEST_CASE("blocks become HTML, and nothing in them becomes markup") {
    const std::string hostile = "<b>&\"'</b>\x01";
    const Document document{
        .title = hostile,
        .subtitle = hostile,
        .blocks = {Heading{hostile}, Heading{hostile, 3}, Paragraph{"Label: " + hostile, true}, Paragraph{hostile},
                   Bullets{{hostile}},
                   TableBlock{.caption = hostile,
                              .header = {hostile, "n"},
                              .rows = {{{hostile}, {"1", 1.0, Tone::good}}, {{"x"}, {"2", 2.0, Tone::bad}}}},
                   TableBlock{.caption = {}, .header = {"h"}, .rows = {{{"folded"}}}, .folded = true},
                   CardBlock{{{hostile, hostile, hostile, Tone::bad}}}}};
    const std::string page = html_of(document);
    CHECK(!contains(page, "<b>"));
    CHECK(count(page, "&lt;b&gt;&amp;&quot;&#39;&lt;/b&gt;\xef\xbf\xbd") == 15); // <title> and the contents, too
    CHECK(contains(page, "<p class=\"lead\"><strong>Label:</strong> &lt;b&gt;"));
    CHECK(contains(page, "<td class=\"good\" data-v=\"1\">1</td>"));
    CHECK(contains(page, "<td class=\"bad\" data-v=\"2\">2</td>"));
    CHECK(contains(page, "<details><summary>1 row</summary>"));
    CHECK(contains(page, "href=\"#s1\""));
    CHECK(contains(page, "<h2 id=\"s1\">"));
    CHECK(count(page, "<script>") == 1);
    CHECK(page == html_of(document));
}

TEST_CASE("cards stand above all else in a page, and are there in Markdown and in a terminal") {
    const std::string reason =
        "Without a scale 71.4 % become zero, and with 2^15 or more less than 0.1 %, which is few.";
    const Document document{
        .title = "T",
        .subtitle = "",
        .blocks = {Heading{"Verdict"}, Paragraph{"all of it"},
                   CardBlock{{{"Format", "amp-bf16,scaler=none", "It ends as FP32 does.", Tone::good},
                              {"Loss scale", "unknown", reason, Tone::fair},
                              {"Training loop", "2 warnings", "train.py:1: no.", Tone::bad}}}}};
    const std::string page = html_of(document);
    const std::size_t cards = page.find("<section class=\"cards\"");
    REQUIRE(cards != std::string::npos);
    CHECK(page.find("<h1>") < cards);
    CHECK(cards < page.find("<nav"));
    CHECK(page.find("<nav") < page.find("<h2 id=\"s1\">"));
    CHECK(contains(page, "<div class=\"card good\"><h2>Format</h2><p class=\"words\">amp-bf16,<wbr>scaler=none</p>"
                         "<p>It ends as FP32 does.</p></div>"));
    CHECK(contains(page, "<div class=\"card fair\"><h2>Loss scale</h2><p class=\"words\">unknown</p>"));
    CHECK(contains(page, "<div class=\"card bad\"><h2>Training loop</h2><p class=\"words\">2 warnings</p>"));
    CHECK(contains(page, "with 2<sup>15</sup> or more less than 0.1\u00a0%, which is few."));
    CHECK(
        contains(markdown_of(document), "- **Format: amp-bf16,scaler=none.** It ends as FP32 does.\n- **Loss scale: "));
    CHECK(contains(terminal_of(document, false), R"(
FORMAT         amp-bf16,scaler=none
  It ends as FP32 does.
LOSS SCALE     unknown
  Without a scale 71.4 % become zero, and with 2^15 or more less than 0.1 %,
  which is few.
TRAINING LOOP  2 warnings
)"));
    CHECK(contains(terminal_of(document, true), "\x1b[31m2 warnings\x1b[0m"));
    CHECK(!contains(html_of({.title = "T", .subtitle = "", .blocks = {CardBlock{}}}), "class=\"cards\""));
}

TEST_CASE("the script of a page is short, and its picture without a page has none") {
    const std::string page = html_of({.title = "T", .subtitle = "", .blocks = {FigureBlock{heat_map(), ""}}});
    const std::size_t begin = page.find("<script>"), end = page.find("</script>");
    REQUIRE(end != std::string::npos);
    CHECK(count(page.substr(begin, end - begin), "\n") <= 150);
    CHECK(count(page, "<script") == 1);
    CHECK(!contains(svg_document({heat_map()}), "<script"));
    CHECK(!contains(svg_document({heat_map()}), "data-"));
}

TEST_CASE("headings of nothing, empty lists and tables are left out everywhere") {
    const Document document{.title = "t",
                            .subtitle = "",
                            .blocks = {Heading{"vacant"}, Heading{"vacant, too", 3}, Bullets{}, Heading{"some"},
                                       Heading{"lacks", 3},
                                       TableBlock{.caption = "beneath", .header = {"h"}, .rows = {}}, Heading{"has", 3},
                                       Paragraph{"it"}, Paragraph{""}, Heading{"final"}}};
    CHECK(markdown_of(document) == "# t\n\n## some\n\n### has\n\nit\n");
    CHECK(terminal_of(document, false) == "t\n\nsome\nhas\nit\n");
    const std::string heading = "What becomes zero at each scale, below _fsdp_wrapped_module._orig_mod.model.layers.";
    CHECK(terminal_of({.title = {}, .subtitle = {}, .blocks = {Heading{heading}, Paragraph{"it"}}}, false) ==
          "What becomes zero at each scale, below\n_fsdp_wrapped_module._orig_mod.model.layers.\nit\n");
    const std::string page = html_of(document);
    for (const char* part : {"vacant", "lacks", "beneath", "final", "<p></p>"}) CHECK(!contains(page, part));
    CHECK(contains(page, "<h2 id=\"s1\">some</h2>\n<h3>has</h3>\n<p>it</p>"));
}

TEST_CASE("columns are sorted by what JavaScript reads as numbers") {
    const double inf = INFINITY;
    const std::string page =
        html_of({.title = "t",
                 .subtitle = "",
                 .blocks = {TableBlock{
                     .caption = {}, .header = {"n"}, .rows = {{{"exact", inf}}, {{"x", -inf}}, {{"y", 1e-300}}}}}});
    for (const char* key : {"\"Infinity\"", "\"-Infinity\"", "\"1e-300\""})
        CHECK(contains(page, std::string("data-v=") + key));
}

TEST_CASE("names in tables may be broken behind their commas and dots, numbers may not") {
    const std::string page =
        html_of({.title = "t",
                 .subtitle = "",
                 .blocks = {TableBlock{.caption = {},
                                       .header = {"h", "n"},
                                       .rows = {{{"fp8,a=b,1,234"}, {"1,234,x"}}, {{"h.11.mlp.c_fc"}, {"1.5"}}}}}});
    CHECK(contains(page, ">fp8,<wbr>a=b,1,234</td>"));
    CHECK(contains(page, ">1,234,x</td>"));
    CHECK(contains(page, ">h.11.<wbr>mlp.<wbr>c_fc</td>")); // a layer's number stays with what it numbers
}

TEST_CASE("powers of two are superscripts in HTML") {
    const std::string page =
        html_of({.title = "t", .subtitle = "", .blocks = {Paragraph{"2^-24, 2^17, 2^-27.7; 2^k, x^2."}}});
    CHECK(contains(page, "<p>2<sup>\u221224</sup>, 2<sup>17</sup>, 2<sup>\u221227.7</sup>; 2^k, x^2.</p>"));
}

TEST_CASE("Markdown holds the same, and shows text as it is") {
    const Document document{
        .title = "T_1",
        .subtitle = "s",
        .blocks = {Heading{"H*"}, Bullets{{"a|b <c> `d`"}},
                   TableBlock{.caption = "under", .header = {"a|b", "n"}, .rows = {{{"[x]"}, {"1", 1.0, Tone::bad}}}},
                   FigureBlock{heat_map(), "Look."}}};
    CHECK(markdown_of(document) == R"(# T\_1

s

## H\*

- a\|b &lt;c&gt; \`d\`

| a\|b | n |
| :-- | --: |
| \[x\] | **1** |

under

Figure: Heat. a: first. b. Look.
)");
}

TEST_CASE("long lists are folded in Markdown as on the page") {
    const Document document{
        .title = "t",
        .subtitle = "",
        .blocks = {TableBlock{.caption = "c", .header = {"h"}, .rows = {{{"x"}}, {{"y"}}}, .folded = true}}};
    CHECK(markdown_of(document) == R"(# t

<details><summary>2 rows</summary>

| h |
| :-- |
| x |
| y |

c

</details>
)");
}

TEST_CASE("a terminal shows it in 80 columns") {
    const std::string wide(60, 'w');
    Document document{
        .title = "T",
        .subtitle = "s",
        .blocks = {Heading{"empty"}, Heading{"empty, too", 3}, Heading{"H"}, Heading{"h", 3}, Paragraph{"a: b", true},
                   Paragraph{"c"}, Bullets{{"d"}},
                   TableBlock{.caption = "under",
                              .header = {"name", "kind", "n"},
                              .rows = {{{"x"}, {"k"}, {"1"}}, {{"x"}, {"kind"}, {"10"}}, {{"y"}, {""}, {"100"}}},
                              .text_columns = 2,
                              .groups = true},
                   FigureBlock{heat_map(), "Look."},
                   TableBlock{.caption = {}, .header = {"folded"}, .rows = {}, .folded = true}},
        .appendix = {Paragraph{"appendix"}}};
    CHECK(terminal_of(document, false) == R"(T
s

H
h
a: b
c

- d

name  kind    n
x     k       1
      kind   10
y           100
under
)");
    SUBCASE("rows of one name are shown as they are where they do not belong together") {
        auto& table = std::get<TableBlock>(document.blocks[7]);
        table.groups = false;
        CHECK(contains(terminal_of(document, false), "x     k       1\nx     kind   10\n"));
        table.groups = true; // names that differ only where they are cut do not repeat
        const std::string name(200, 'n');
        for (std::size_t row = 0; row < 3; ++row) table.rows[row][0].text = name + std::to_string(row) + name;
        CHECK(count(terminal_of(document, false), "nnnn") > 3);
    }
    SUBCASE("brief cells, and as many tables as it takes") {
        TableBlock table{
            .caption = {}, .header = {"name", "n"}, .rows = {{{wide}, count_cell(std::uint64_t{1'234'567})}}};
        document.blocks = {table};
        CHECK(contains(terminal_of(document, false), wide + "  1,234,567\n"));
        table.rows[0][0].text += wide;
        document.blocks = {table};
        CHECK(contains(terminal_of(document, false), "w  1.23M\n"));
        table.header = {"name", wide, "n", wide + "2"};
        table.rows = {{{std::string(300, 'n')}, {"1"}, {"2"}, {"3"}}};
        std::string asian;
        for (int i = 0; i < 100; ++i) asian += "層";
        table.rows.push_back({{asian}, {"4"}, {"5"}, {asian}});
        document.blocks = {table};
        const std::string text = terminal_of(document, false);
        std::istringstream lines(text);
        for (std::string line; std::getline(lines, line);) CHECK(width(line) <= 80);
        CHECK(count(text, "nnn\u2026nnn") + count(text, "n\u2026n") >= 2); // the names are there in each part
    }
    SUBCASE("colour, and nothing else that a terminal obeys") {
        const std::string hostile = "<\x1b[2J>\x01";
        document = {.title = hostile,
                    .subtitle = hostile,
                    .blocks = {Heading{hostile}, Paragraph{hostile}, Paragraph{.text = "bad", .tone = Tone::bad},
                               Bullets{{hostile}},
                               TableBlock{.caption = hostile,
                                          .header = {hostile, "n"},
                                          .rows = {{{hostile}, {"good", 1.0, Tone::good}}}}}};
        CHECK(!contains(terminal_of(document, false), "\x1b"));
        const std::string text = terminal_of(document, true);
        CHECK(contains(text, "\x1b[31mbad\x1b[0m"));
        CHECK(contains(text, "\x1b[32mgood\x1b[0m"));
        CHECK(!contains(text, "\x1b[2J"));
        CHECK(!contains(text, "\x01"));
    }
}

TEST_CASE("a heat map shows each cell in the shade of its value, and what is not known not at all") {
    const std::string svg = svg_document({heat_map()});
    const auto cells = [&](int shade) {
        std::smatch found;
        const std::regex path("<path class=\"heat-" + std::to_string(shade) + "\" d=\"([^\"]*)\"");
        return std::regex_search(svg, found, path) ? found[1].str() : std::string();
    };
    // Columns are (772 - 210) / 4 = 140.5 wide from 210 on, cells 13 high; equal neighbours are one rectangle.
    CHECK(cells(0).starts_with("M210 "));
    CHECK(cells(0).ends_with("h140.5v13h-140.5z"));
    CHECK(cells(1).starts_with("M350.5 ")); // 0.001 and 0.0099
    CHECK(cells(1).ends_with("h281v13h-281z"));
    CHECK(cells(2).starts_with("M631.5 ")); // 0.01
    CHECK(count(cells(0) + cells(1) + cells(2), "M") == 3);
    CHECK(cells(3).empty());
    CHECK(cells(4).empty());
    CHECK(cells(5).starts_with("M210 ")); // 0.95, a gap, then 1 and 0.9
    CHECK(contains(cells(5), "zM491 "));
    CHECK(cells(5).ends_with("h281v13h-281z"));
    CHECK(contains(svg, ">here</text>"));
    CHECK(contains(svg, "<title>a: first</title>"));
    CHECK(description_of(heat_map()) == "Heat. a: first. b.");
}

TEST_CASE("in a page a heat map says what its cells are, and names keep the layer's number") {
    HeatFigure figure = heat_map();
    figure.rows[0].name = "model.decoder.layers.17.self_attention.query_key_value, weight grad";
    const std::string svg = svg_fragment(figure, "x");
    CHECK(contains(svg, "data-columns=\"0|10|20|30\""));
    CHECK(contains(svg, "data-cells=\"[0,0.1,0.99,1]\""));
    CHECK(contains(svg, "data-cells=\"[95,null,100,90]\""));
    CHECK(contains(svg, ".17."));
    CHECK(contains(svg, "weight grad</text>"));
}

TEST_CASE("files are hashed as FIPS 180-4 has it") {
    const Scratch scratch;
    std::ofstream(scratch / "abc") << "abc";
    std::ofstream(scratch / "million") << std::string(1'000'000, 'a');
    std::ofstream(scratch / "empty") << "";
    CHECK(hashed(scratch / "abc", "x").sha256 == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    CHECK(hashed(scratch / "million", "x").sha256 ==
          "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    CHECK(hashed(scratch / "million", "x").bytes == 1'000'000);
    CHECK(sha256_of("abc") == hashed(scratch / "abc", "x").sha256);
    CHECK(sha256_of("") == hashed(scratch / "empty", "x").sha256);
    CHECK(hashed(scratch / "empty", "x").sha256 == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    CHECK_THROWS_AS(hashed(scratch / "none", "x"), FileError);
}

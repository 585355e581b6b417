#include <ampscope/tools/document/document.h>

#include <ampscope/tools/chart/svg.h>

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <iterator>
#include <regex>

namespace amp {

namespace {

using svg::escaped;

constexpr std::string_view style = R"(
:root{color-scheme:light dark;
--ink:#1b1f24;--quiet:#57606a;--paper:#fff;--line:#d8dee4;--band:#f6f8fa;--link:#0060a0;
--good:#d5efe4;--fair:#fdeccb;--bad:#f9d5c2}
@media (prefers-color-scheme:dark){:root{
--ink:#e6edf3;--quiet:#9aa4af;--paper:#0d1117;--line:#30363d;--band:#161b22;--link:#6cb8f0;
--good:#12402f;--fair:#4a3a08;--bad:#5c2608}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:1080px;padding:24px 20px 64px;color:var(--ink);background:var(--paper);
font:16px/1.5 system-ui,"Segoe UI","DejaVu Sans",sans-serif;overflow-wrap:anywhere}
h1{font-size:1.7rem;line-height:1.2;margin:0 0 4px}
h2{font-size:1.3rem;margin:44px 0 8px;padding-top:10px;border-top:1px solid var(--line)}
h3{font-size:1.05rem;margin:28px 0 6px}
p,ul{margin:8px 0;max-width:52rem}
a,summary{color:var(--link)}
summary{cursor:pointer}
sup{line-height:0}
.note,figcaption{color:var(--quiet);font-size:.875rem}
.lead{font-size:1.1rem}
nav ul{display:flex;flex-wrap:wrap;gap:4px 18px;padding:0;list-style:none;font-size:.9rem}
.scroll{overflow-x:auto;margin:12px 0}
table{border-collapse:collapse;font-size:.875rem;font-variant-numeric:tabular-nums}
th,td{padding:4px 10px;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap}
th{background:var(--band);vertical-align:bottom;white-space:normal;overflow-wrap:normal}
.t{text-align:left}
td.t{max-width:34em;min-width:11em;white-space:normal}
.good{background:var(--good)}
.fair{background:var(--fair)}
.bad{background:var(--bad);font-weight:600}
th button{all:unset;cursor:pointer}
th button:hover{text-decoration:underline}
th button:focus-visible{outline:2px solid var(--link)}
th[aria-sort=ascending] button::after{content:" \25b2"}
th[aria-sort=descending] button::after{content:" \25bc"}
figure{margin:18px 0}
figcaption{max-width:58rem}
figure svg{display:block;width:100%;min-width:680px;max-width:900px;height:auto}
@media print{
:root{--ink:#000;--quiet:#333;--paper:#fff;--line:#999;--band:#eee;--good:#fff;--fair:#eee;--bad:#ddd}
body{max-width:none;padding:0;font-size:11pt}
nav{display:none}
.scroll{overflow:visible}
table{font-size:7.5pt}
th,td{padding:2px 4px}
td.t{min-width:0}
figure svg{min-width:0}
tr,.picture{break-inside:avoid}
h2,h3{break-after:avoid}
}
)";

// Headers become buttons that sort their table; without script it stays as it is.
constexpr std::string_view script = R"(
for (const table of document.querySelectorAll("table.sorts")) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  heads.forEach((head, i) => {
    const button = document.createElement("button");
    button.append(...head.childNodes);
    head.append(button);
    button.onclick = () => {
      const up = head.ariaSort !== "ascending";
      heads.forEach(h => { h.removeAttribute("aria-sort"); });
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const key = row => row.cells[i].dataset.v ?? row.cells[i].textContent;
      const order = (a, b) => key(a).localeCompare(key(b), "en", {numeric: true});
      const value = row => Number.isNaN(Number(key(row))) ? -Infinity : Number(key(row));
      const number = (a, b) => value(a) < value(b) ? -1 : value(a) > value(b) ? 1 : order(a, b);
      const rows = [...body.rows], numeric = rows.some(row => row.cells[i].dataset.v);
      rows.sort(numeric ? number : order);
      if (!up) rows.reverse();
      body.append(...rows);
    };
  });
}
)";

/// Escaped text with powers of two as people write them: 2^-24 becomes 2 to the superscript -24.
std::string marked(std::string_view text) {
    static const std::regex negative("2\\^-([0-9]{1,5}(\\.[0-9]+)?)"), positive("2\\^([0-9]{1,5}(\\.[0-9]+)?)");
    const std::string plain = std::regex_replace(escaped(text), negative, "2<sup>−$1</sup>");
    return std::regex_replace(plain, positive, "2<sup>$1</sup>");
}

/// A name that may be broken behind its commas: "fp8-current,accumulate=..." on a phone.
std::string breakable(const std::string& html) {
    static const std::regex comma(",([A-Za-z])");
    return std::regex_replace(html, comma, ",<wbr>$1");
}

/// What a column is sorted by, as JavaScript reads it.
std::string sort_key(double value) {
    return std::isinf(value) ? value < 0 ? "-Infinity" : "Infinity" : fmt::format("{}", value);
}

constexpr std::array<std::string_view, 4> tone_classes = {"", "good", "fair", "bad"};

std::string attribute_class(bool text, Tone tone) {
    const std::string_view tones = tone_classes[static_cast<std::size_t>(tone)];
    if (!text && tones.empty()) return "";
    return fmt::format(" class=\"{}{}{}\"", text ? "t" : "", text && !tones.empty() ? " " : "", tones);
}

/// Writes the blocks one after the other; sections and figures are numbered for their ids.
class PageWriter {
  public:
    explicit PageWriter(const Document& document) {
        for (const auto* part : {&document.blocks, &document.appendix})
            for (const Block* block : blocks_with_content(*part)) std::visit([&](const auto& b) { write(b); }, *block);
    }
    std::string body;
    std::vector<std::string> sections;

  private:
    template <class... Values>
    void put(fmt::format_string<Values...> text, Values&&... values) {
        fmt::format_to(std::back_inserter(body), text, std::forward<Values>(values)...);
    }

    void write(const Heading& h) {
        if (h.level > 2) return put("<h3>{}</h3>\n", marked(h.text));
        sections.push_back(h.text);
        put("<h2 id=\"s{}\">{}</h2>\n", sections.size(), marked(h.text));
    }
    void write(const Paragraph& p) {
        const std::size_t colon = p.lead ? p.text.find(':') : std::string::npos;
        if (colon == std::string::npos) return put("<p{}>{}</p>\n", attribute_class(false, p.tone), marked(p.text));
        put("<p class=\"lead\"><strong>{}</strong>{}</p>\n", marked(p.text.substr(0, colon + 1)),
            marked(p.text.substr(colon + 1)));
    }
    void write(const Bullets& list) {
        put("<ul>\n");
        for (const std::string& item : list.items) put("<li>{}</li>\n", marked(item));
        put("</ul>\n");
    }
    void write(const TableBlock& table) {
        if (table.folded)
            put("<details><summary>{} {}</summary>\n", table.rows.size(), table.rows.size() == 1 ? "row" : "rows");
        put("<figure>{}<div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"table\">\n<table "
            "class=\"sorts\">\n",
            table.caption.empty() ? "" : fmt::format("<figcaption>{}</figcaption>", marked(table.caption)));
        put("<thead><tr>");
        for (std::size_t i = 0; i < table.header.size(); ++i)
            put("<th scope=\"col\"{}>{}</th>", attribute_class(i < table.text_columns, Tone::plain),
                escaped(table.header[i]));
        put("</tr></thead>\n<tbody>\n");
        for (const auto& row : table.rows) {
            put("<tr>");
            for (std::size_t i = 0; i < row.size(); ++i)
                put("<td{}{}>{}</td>", attribute_class(i < table.text_columns, row[i].tone),
                    row[i].value ? fmt::format(" data-v=\"{}\"", sort_key(*row[i].value)) : "",
                    i < table.text_columns ? breakable(marked(row[i].text)) : marked(row[i].text));
            put("</tr>\n");
        }
        put("</tbody></table></div></figure>\n");
        if (table.folded) put("</details>\n");
    }
    void write(const FigureBlock& figure) {
        put("<figure class=\"picture\"><div class=\"scroll\" tabindex=\"0\" role=\"group\" "
            "aria-label=\"figure\">\n{}</div>\n",
            svg_fragment(figure.figure, fmt::format("figure-{}", ++figures_)));
        if (!figure.caption.empty()) put("<figcaption>{}</figcaption>", marked(figure.caption));
        put("</figure>\n");
    }

    int figures_ = 0;
};

} // namespace

std::string html_of(const Document& document) {
    const PageWriter writer(document);
    std::string contents;
    for (std::size_t i = 0; i < writer.sections.size(); ++i)
        contents += fmt::format("<li><a href=\"#s{}\">{}</a></li>", i + 1, escaped(writer.sections[i]));
    return fmt::format(
        R"(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:">
<link rel="icon" href="data:,">
<title>{0}</title>
<style>{1}</style>
</head>
<body>
{2}<header><h1>{0}</h1>{3}</header>
<main>
{4}{5}</main>
<script>{6}</script>
</body>
</html>
)",
        escaped(document.title), style, svg_definitions(),
        document.subtitle.empty() ? "" : fmt::format("\n<p class=\"note\">{}</p>", marked(document.subtitle)),
        contents.empty() ? "" : fmt::format("<nav aria-label=\"Contents\"><ul>{}</ul></nav>\n", contents), writer.body,
        script);
}

} // namespace amp

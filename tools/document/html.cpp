#include <ampscope/tools/document/document.h>

#include <ampscope/tools/chart/svg.h>
#include <ampscope/tools/document/page_parts.h>

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <iterator>
#include <regex>

namespace amp {

namespace {

using svg::escaped;

/// Escaped text with powers of two as people write them: 2^-24 becomes 2 to the superscript -24.
std::string marked(std::string_view text) {
    static const std::regex negative("2\\^-([0-9]{1,5}(\\.[0-9]+)?)"), positive("2\\^([0-9]{1,5}(\\.[0-9]+)?)");
    const std::string plain = std::regex_replace(escaped(text), negative, "2<sup>−$1</sup>");
    return std::regex_replace(plain, positive, "2<sup>$1</sup>");
}

/// A name that may be broken behind its commas and dots, as on a phone: "fp8-current,accumulate=...", "h.11.mlp.c_fc".
/// A layer's number stays with what it numbers.
std::string breakable(const std::string& html) {
    static const std::regex end_of_part("([,.])([A-Za-z_])");
    return std::regex_replace(html, end_of_part, "$1<wbr>$2");
}

/// Text in which "0.1 %" stays in one line.
std::string unbroken(const std::string& html) {
    static const std::regex percent("([0-9]) %");
    return std::regex_replace(html, percent, "$1\u00a0%");
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

std::string card_class(Tone tone) {
    const std::string_view tones = tone_classes[static_cast<std::size_t>(tone)];
    return fmt::format(" class=\"card{}{}\"", tones.empty() ? "" : " ", tones);
}

/// Writes the blocks one after the other, and cards apart; sections and figures are numbered for their ids.
class PageWriter {
  public:
    explicit PageWriter(const Document& document) {
        for (const auto* part : {&document.blocks, &document.appendix})
            for (const Block* block : blocks_with_content(*part)) std::visit([&](const auto& b) { write(b); }, *block);
    }
    std::string cards, body;
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
        put("<figure><div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"table\">\n<table "
            "class=\"sorts\">\n<thead><tr>");
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
        put("</tbody></table></div>{}</figure>\n",
            table.caption.empty() ? "" : fmt::format("<figcaption>{}</figcaption>", marked(table.caption)));
        if (table.folded) put("</details>\n");
    }
    void write(const CardBlock& block) {
        for (const Card& card : block.cards)
            fmt::format_to(std::back_inserter(cards), "<div{}><h2>{}</h2><p class=\"words\">{}</p><p>{}</p></div>\n",
                           card_class(card.tone), marked(card.about), breakable(marked(card.words)),
                           unbroken(marked(card.text)));
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
{4}{5}{6}</main>
<script>{7}</script>
</body>
</html>
)",
        escaped(document.title), page_style, svg_definitions(),
        document.subtitle.empty() ? "" : fmt::format("\n<p class=\"note\">{}</p>", marked(document.subtitle)),
        writer.cards.empty()
            ? ""
            : fmt::format("<section class=\"cards\" aria-label=\"In short\">\n{}</section>\n", writer.cards),
        contents.empty() ? "" : fmt::format("<nav aria-label=\"Contents\"><ul>{}</ul></nav>\n", contents), writer.body,
        page_script);
}

} // namespace amp

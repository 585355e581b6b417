#include <ampscope/tools/document/document.h>

#include <ampscope/sim/base/text.h>

#include <fmt/format.h>

namespace amp {

namespace {

/// Text that Markdown shows as it is.
std::string plain(std::string_view text) {
    std::string out;
    for (const char c : printable(text)) {
        if (c == '<') out += "&lt;";
        else if (c == '>') out += "&gt;";
        else if (c == '&') out += "&amp;";
        else if (std::string_view("\\`*_[]|#~").find(c) != std::string_view::npos) (out += '\\') += c;
        else out += c;
    }
    return out;
}

std::string text_of(const Heading& h) {
    return fmt::format("{} {}\n\n", std::string(static_cast<std::size_t>(h.level), '#'), plain(h.text));
}

std::string text_of(const Paragraph& p) {
    return (p.tone == Tone::bad ? "**" + plain(p.text) + "**" : plain(p.text)) + "\n\n";
}

std::string text_of(const Bullets& list) {
    std::string text;
    for (const std::string& item : list.items) text += "- " + plain(item) + "\n";
    return text + "\n";
}

std::string text_of(const TableBlock& table) {
    std::string text =
        table.folded ? fmt::format("<details><summary>{}</summary>\n\n|", plural(table.rows.size(), "row")) : "|";
    std::string rule = "|";
    for (std::size_t i = 0; i < table.header.size(); ++i) {
        text += " " + plain(table.header[i]) + " |";
        rule += i < table.text_columns ? " :-- |" : " --: |";
    }
    text += "\n" + rule + "\n";
    for (const auto& row : table.rows) {
        text += "|";
        for (const Cell& cell : row)
            text += cell.tone == Tone::bad ? " **" + plain(cell.text) + "** |" : " " + plain(cell.text) + " |";
        text += "\n";
    }
    text += "\n" + (table.caption.empty() ? "" : plain(table.caption) + "\n\n");
    return text + (table.folded ? "</details>\n\n" : "");
}

std::string text_of(const CardBlock& block) {
    std::string text;
    for (const Card& card : block.cards)
        text += fmt::format("- **{}: {}.** {}\n", plain(card.about), plain(card.words), plain(card.text));
    return text + "\n";
}

std::string text_of(const FigureBlock& block) {
    constexpr std::size_t longest = 1500; // a page of words is no alternative to a picture
    std::string text = plain(clipped(printable(description_of(block.figure)), longest));
    if (!block.caption.empty()) text += " " + plain(block.caption);
    return "Figure: " + text + "\n\n";
}

} // namespace

std::string markdown_of(const Document& document) {
    std::string text = fmt::format("# {}\n\n", plain(document.title));
    if (!document.subtitle.empty()) text += plain(document.subtitle) + "\n\n";
    for (const auto* part : {&document.blocks, &document.appendix})
        for (const Block* block : blocks_with_content(*part))
            text += std::visit([](const auto& b) { return text_of(b); }, *block);
    text.pop_back(); // the last empty line
    return text;
}

} // namespace amp

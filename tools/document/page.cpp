#include <ampscope/tools/document/page.h>

#include <fmt/format.h>

#include <variant>
#include <vector>

namespace amp {

TableBlock file_table(std::span<const SourceFile> files) {
    TableBlock table{.caption = "SHA-256, as sha256sum prints it.",
                     .header = {"file", "SHA-256", "bytes"},
                     .rows = {},
                     .text_columns = 2,
                     .folded = true};
    for (const SourceFile& file : files) table.rows.push_back({{file.name}, {file.sha256}, count_cell(file.bytes)});
    return table;
}

std::string page_of(Document document, const PageFacts& facts) {
    Bullets trouble{facts.errors};
    trouble.items.insert(trouble.items.end(), facts.warnings.begin(), facts.warnings.end());
    if (!trouble.items.empty()) {
        std::vector<Block> first = {Heading{"What went wrong"}, std::move(trouble)};
        if (!document.blocks.empty() && !std::holds_alternative<Heading>(document.blocks.front()))
            first.emplace_back(Heading{"Findings"}); // which would stand below what went wrong
        document.blocks.insert(document.blocks.begin(), first.begin(), first.end());
    }
    const std::string made_by = fmt::format("This page: {}; made by ampscope {}.", facts.command, AMPSCOPE_VERSION);
    document.appendix = {Heading{"Definitions"}, Bullets{facts.definitions}, Heading{"Provenance"}, Bullets{{made_by}},
                         file_table(source_files(facts.inputs))};
    return html_of(document);
}

} // namespace amp

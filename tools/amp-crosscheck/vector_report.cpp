#include <ampscope/tools/amp-crosscheck/vector_report.h>

#include <ampscope/tools/output.h>

#include <bit>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace amp::crosscheck_tool {

namespace {

std::string word(std::uint32_t bits) { return fmt::format("{:#010x}", bits); }

std::string mismatch_text(const VectorFile& file, const RecordedMismatch& m) {
    return fmt::format("{}, case {}: got {} ({:a}), recorded {} ({:a})", file.file.filename().string(), m.index,
                       word(m.got), std::bit_cast<float>(m.got), word(m.want), std::bit_cast<float>(m.want));
}

} // namespace

Document document_of(const std::vector<VectorFile>& files) {
    TableBlock table{.caption = {},
                     .header = {"file", "accumulator", "operands", "k", "cases", "mismatches"},
                     .rows = {},
                     .text_columns = 3};
    Bullets first;
    for (const VectorFile& f : files)
        for (const RecordedComparison& r : f.outputs) {
            std::vector<Cell> row = {{f.file.filename().string()},
                                     {r.accumulator.name},
                                     {fmt::format("{} x {} -> {}", r.a.name, r.b.name, r.output)}};
            for (const std::uint64_t n : {r.k, r.cases, r.mismatches})
                row.push_back({std::to_string(n), static_cast<double>(n)});
            if (r.mismatches > 0) row.back().tone = Tone::bad;
            table.rows.push_back(std::move(row));
            for (const RecordedMismatch& m : r.first) first.items.push_back(mismatch_text(f, m));
        }
    Document document{.title = {}, .subtitle = {}, .blocks = {std::move(table)}};
    if (!first.items.empty()) document.add(std::move(first));
    return document;
}

std::string vectors_json(const std::vector<VectorFile>& files) {
    auto json = nlohmann::ordered_json::array();
    for (const VectorFile& f : files)
        for (const RecordedComparison& r : f.outputs) {
            auto first = nlohmann::ordered_json::array();
            for (const RecordedMismatch& m : r.first)
                first.push_back({{"case", m.index}, {"got", word(m.got)}, {"recorded", word(m.want)}});
            json.push_back({{"file", f.file.string()},
                            {"accumulator", r.accumulator.name},
                            {"evidence", name_of(r.accumulator.evidence)},
                            {"a", r.a.name},
                            {"b", r.b.name},
                            {"output", r.output},
                            {"k", r.k},
                            {"cases", r.cases},
                            {"mismatches", r.mismatches},
                            {"first", first}});
        }
    return json_text({{"schema_version", 1}, {"vectors", json}}, 2);
}

} // namespace amp::crosscheck_tool

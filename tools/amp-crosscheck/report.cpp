#include <ampscope/tools/amp-crosscheck/report.h>

#include <ampscope/sim/base/text.h>
#include <ampscope/tools/output.h>

#include <algorithm>
#include <bit>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace amp::crosscheck_tool {

namespace {

std::string word(std::uint32_t bits) { return fmt::format("{:#010x}", bits); }

std::string mismatch_line(const RecordedMismatch& m) {
    return fmt::format("    case {}: got {} ({:a}), recorded {} ({:a})\n", m.index, word(m.got),
                       std::bit_cast<float>(m.got), word(m.want), std::bit_cast<float>(m.want));
}

} // namespace

std::string vectors_table(const std::vector<VectorFile>& files) {
    std::size_t width = 4;
    for (const VectorFile& f : files) width = std::max(width, f.file.filename().string().size());
    std::string text = fmt::format("{:<{}}  {:<28}{:<14}{:<8}{:>6}{:>10}{:>12}\n", "file", width, "accumulator",
                                   "a x b", "output", "k", "cases", "mismatches");
    for (const VectorFile& f : files)
        for (const RecordedComparison& r : f.outputs) {
            text += fmt::format("{:<{}}  {:<28}{:<14}{:<8}{:>6}{:>10}{:>12}\n", printable(f.file.filename().string()),
                                width, r.accumulator.name, fmt::format("{} x {}", r.a.name, r.b.name), r.output, r.k,
                                r.cases, r.mismatches);
            for (const RecordedMismatch& m : r.first) text += mismatch_line(m);
        }
    return text;
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

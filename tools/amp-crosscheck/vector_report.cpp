#include <ampscope/tools/amp-crosscheck/vector_report.h>

#include <ampscope/sim/base/text.h>
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

/// "convert fp32 to e4m3", "e4m3 x e5m2, hopper-wgmma-fp8".
std::string operation_text(const conformance::Question& q) {
    if (q.op == conformance::Op::convert) return fmt::format("convert {} to {}", q.format.name, q.to->name);
    if (q.op != conformance::Op::dot) return fmt::format("{} {}", q.format.name, name_of(q.op));
    const std::string scales = q.scales ? fmt::format(", {} scales of {}", q.scales->format.name, q.scales->block) : "";
    return fmt::format("{} x {}, {}{}", q.format.name, q.b.value_or(q.format).name, q.sum->name, scales);
}

/// "3C00 01", as the file has it.
std::string answer_text(const conformance::Question& q, const conformance::Answer& a) {
    const conformance::Column result = columns_of(q).back();
    const std::string code = fmt::format("{:0{}X}", a.result << result.shift(), result.digits());
    return has_flags(q) ? fmt::format("{} {:02X}", code, a.flags) : code;
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
            if (r.mismatches > 0 || r.nearby.empty()) continue;
            const std::string refuted = differences(r.nearby, true), left = differences(r.nearby, false);
            first.items.push_back(fmt::format("{}: sums with {} are refuted{}{}", f.file.filename().string(),
                                              refuted.empty() ? "no difference" : refuted,
                                              left.empty() ? "" : ", not those with ", left));
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
            auto nearby = nlohmann::ordered_json::array();
            for (const NearbySum& n : r.nearby)
                nearby.push_back({{"difference", n.difference}, {"refuted", n.refuted}});
            json.push_back({{"file", f.file.string()},
                            {"accumulator", r.accumulator.name},
                            {"evidence", name_of(r.accumulator.evidence)},
                            {"a", r.a.name},
                            {"b", r.b.name},
                            {"output", r.output},
                            {"k", r.k},
                            {"cases", r.cases},
                            {"mismatches", r.mismatches},
                            {"first", first},
                            {"nearby", nearby}});
        }
    return json_text({{"schema_version", 1}, {"vectors", json}}, 2);
}

Document document_of(const std::vector<CheckedCases>& files) {
    TableBlock table{
        .caption = {}, .header = {"file", "operation", "cases", "agree", "mismatches"}, .rows = {}, .text_columns = 2};
    Bullets first;
    for (const CheckedCases& f : files) {
        const conformance::Question& q = f.file.cases.question;
        const std::string name = printable(f.path.filename().string());
        std::vector<Cell> row = {{name}, {operation_text(q)}};
        for (const std::uint64_t n : {f.check.cases, f.check.cases - f.check.mismatches, f.check.mismatches})
            row.push_back({std::to_string(n), static_cast<double>(n)});
        if (f.check.mismatches > 0) row.back().tone = Tone::bad;
        table.rows.push_back(std::move(row));
        for (const conformance::Mismatch& m : f.check.first)
            first.items.push_back(fmt::format("{}, {}: has {}, exact arithmetic gives {}", name, f.file.place(m.index),
                                              answer_text(q, m.written), answer_text(q, m.computed)));
    }
    Document document{.title = {}, .subtitle = {}, .blocks = {std::move(table)}};
    if (!first.items.empty()) document.add(std::move(first));
    return document;
}

std::string cases_json(const std::vector<CheckedCases>& files) {
    auto json = nlohmann::ordered_json::array();
    for (const CheckedCases& f : files) {
        const conformance::Question& q = f.file.cases.question;
        auto first = nlohmann::ordered_json::array();
        for (const conformance::Mismatch& m : f.check.first)
            first.push_back({{"place", f.file.place(m.index)},
                             {"file", answer_text(q, m.written)},
                             {"exact", answer_text(q, m.computed)}});
        json.push_back({{"file", f.path.string()},
                        {"operation", operation_text(q)},
                        {"cases", f.check.cases},
                        {"mismatches", f.check.mismatches},
                        {"first", first}});
    }
    return json_text({{"schema_version", 1}, {"cases", json}}, 2);
}

} // namespace amp::crosscheck_tool

#include <ampscope/tools/amp-crosscheck/device_report.h>

#include <ampscope/sim/io/json_reader.h>
#include <ampscope/tools/output.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <fmt/format.h>
#include <fstream>
#include <nlohmann/json.hpp>

namespace amp::crosscheck_tool {

namespace {

std::string hex_and_float(std::uint32_t bits) {
    return fmt::format("{:#010x} ({:a})", bits, std::bit_cast<float>(bits));
}

std::int64_t sum(const DeviceCheck& check, std::int64_t CheckRow::*member) {
    std::int64_t total = 0;
    for (const CheckRow& r : check.rows) total += r.*member;
    return total;
}

/// Tells this build from others, whose rows say nothing of it. Empty for the host: any build makes the same report.
std::string build(const CudaDevice& device) {
    if (device.is_host()) return "";
    std::ifstream program("/proc/self/exe", std::ios::binary);
    std::uint64_t hash = 0xcbf29ce484222325; // FNV-1a of words
    for (std::uint64_t word = 0; program.read(reinterpret_cast<char*>(&word), sizeof word);)
        hash = (hash ^ word) * 0x100000001b3;
    return fmt::format("{:016x}", hash);
}

/// The rows of one part, and what differed first in each.
void add_part(Document& document, const DeviceCheck& check, std::string_view part) {
    std::vector<const CheckRow*> rows;
    for (const CheckRow& r : check.rows)
        if (r.part == part) rows.push_back(&r);
    const bool notes = std::ranges::any_of(rows, [](const CheckRow* r) { return !r->note.empty(); });
    TableBlock table{.caption = {}, .header = {"what"}, .rows = {}, .text_columns = notes ? 2u : 1u};
    if (notes) table.header.emplace_back("note");
    table.header.insert(table.header.end(), {"cases", "mismatches"});
    Bullets first;
    for (const CheckRow* r : rows) {
        std::vector<Cell> cells = {{r->name}};
        if (notes) cells.push_back({.text = r->note, .brief = r->note.substr(0, r->note.find(','))});
        for (const std::int64_t n : {r->cases, r->mismatches})
            cells.push_back({std::to_string(n), static_cast<double>(n)});
        if (r->mismatches > 0) cells.back().tone = Tone::bad;
        table.rows.push_back(std::move(cells));
        if (r->first)
            first.items.push_back(fmt::format("{}: {}: got {}, expected {}", r->name, r->first->where,
                                              hex_and_float(r->first->got), hex_and_float(r->first->want)));
    }
    document.add(Heading{std::string(part)});
    document.add(std::move(table));
    if (!first.items.empty()) document.add(std::move(first));
}

} // namespace

std::string subject(const CudaDevice& device) {
    if (device.is_host() && device.capability() > 0)
        return fmt::format("device functions on the host, matrix instructions of compute capability {}.{} by their "
                           "model; not measured on hardware",
                           device.major, device.minor);
    if (device.is_host()) return "device functions on the host; not measured on hardware";
    return fmt::format("{} (compute capability {}.{}, driver for CUDA {}.{})", device.name, device.major, device.minor,
                       device.driver / 1000, device.driver % 1000 / 10);
}

Document document_of(const DeviceCheck& check, const std::string& command) {
    Document document{.title = "Cross-check: " + subject(check.options.device),
                      .subtitle = fmt::format("Made by {} of ampscope {}.", command, AMPSCOPE_VERSION),
                      .blocks = {}};
    if (check.options.device.is_host())
        document.add(Paragraph{"No CUDA device took part. On a machine that has one, tools/check --device builds for "
                               "it, runs this and writes its report into reports/device."});
    if (check.options.quick) document.add(Paragraph{"With --quick: samples, not all inputs."});
    if (!check.finished) document.add(Paragraph{"Not finished; --resume with this report's folder goes on."});
    std::vector<std::string_view> parts;
    for (const CheckRow& r : check.rows)
        if (parts.empty() || parts.back() != r.part) parts.push_back(r.part);
    for (const std::string_view part : parts) add_part(document, check, part);
    if (!check.speeds.empty()) {
        document.add(Heading{"speed"});
        Bullets speeds;
        for (const SpeedRow& s : check.speeds)
            speeds.items.push_back(fmt::format("{}: {:.1f} {}; {}", s.name, s.value, s.unit, s.note));
        document.add(std::move(speeds));
    }
    document.add(Paragraph{.text = fmt::format("{} comparisons, {} mismatches", sum(check, &CheckRow::cases),
                                               sum(check, &CheckRow::mismatches)),
                           .tone = check.agrees() ? Tone::good : Tone::bad});
    return document;
}

std::string check_json(const DeviceCheck& check, const std::string& command) {
    using Json = nlohmann::ordered_json;
    const CudaDevice& d = check.options.device;
    Json device = {{"name", d.name}, {"hardware", !d.is_host()}};
    if (!d.is_host())
        device.update(Json{{"capability", fmt::format("{}.{}", d.major, d.minor)},
                           {"driver", d.driver},
                           {"memory", d.memory},
                           {"bandwidth", d.bandwidth}});
    Json rows = Json::array(), speeds = Json::array();
    for (const CheckRow& r : check.rows) {
        Json row = {{"part", r.part}, {"name", r.name}, {"cases", r.cases}, {"mismatches", r.mismatches}};
        if (!r.note.empty()) row["note"] = r.note;
        if (r.first)
            row["first"] = {{"where", r.first->where},
                            {"got", fmt::format("{:#010x}", r.first->got)},
                            {"expected", fmt::format("{:#010x}", r.first->want)}};
        rows.push_back(row);
    }
    for (const SpeedRow& s : check.speeds)
        speeds.push_back({{"name", s.name}, {"value", s.value}, {"unit", s.unit}, {"note", s.note}});
    return json_text({{"schema_version", 1},
                      {"command", command},
                      {"version", AMPSCOPE_VERSION},
                      {"build", build(d)},
                      {"device", device},
                      {"quick", check.options.quick},
                      {"steps", check.options.steps},
                      {"finished", check.finished},
                      {"cases", sum(check, &CheckRow::cases)},
                      {"mismatches", sum(check, &CheckRow::mismatches)},
                      {"rows", rows},
                      {"speed", speeds}});
}

std::vector<CheckRow> agreeing_rows(const std::filesystem::path& file, const CheckOptions& options) {
    std::vector<CheckRow> rows;
    if (!std::filesystem::exists(file)) return rows;
    const auto json = read_json_object(file);
    return taken(file, "no report of amp-crosscheck run", [&] {
        if (json.at("device").at("name") != options.device.name || json.at("quick") != options.quick ||
            json.at("steps") != options.steps || json.value("build", "") != build(options.device))
            return rows;
        const auto differ = [&](const auto& part) { // of ops all are compared again if one is
            return std::ranges::any_of(json.at("rows"), [&](const auto& row) {
                return part == "ops" && row.at("part") == part && row.at("mismatches") != 0;
            });
        };
        for (const auto& row : json.at("rows"))
            if (row.at("mismatches") == 0 && !differ(row.at("part")))
                rows.push_back({.part = row.at("part"),
                                .name = row.at("name"),
                                .cases = row.at("cases"),
                                .note = row.value("note", "")});
        return rows;
    });
}

} // namespace amp::crosscheck_tool

#include <ampscope/tools/amp-crosscheck/replay_report.h>

#include <ampscope/sim/base/text.h>
#include <ampscope/tools/chart/terminal.h>
#include <ampscope/tools/output.h>

#include <bit>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace amp::crosscheck_tool {

namespace {

std::string hex_and_float(std::uint32_t bits) {
    return fmt::format("{:#010x} ({:a})", bits, std::bit_cast<float>(bits));
}

std::string first_of(const ReplayRow& r) {
    return r.first ? fmt::format("{}: got {}, expected {}", r.first->where, hex_and_float(r.first->got),
                                 hex_and_float(r.first->want))
                   : "";
}

std::int64_t sum(const Replay& replay, std::int64_t ReplayRow::*member) {
    std::int64_t total = 0;
    for (const ReplayRow& r : replay.rows) total += r.*member;
    return total;
}

std::string verdict(const Replay& replay) {
    return fmt::format("{} comparisons, {} mismatches", sum(replay, &ReplayRow::cases),
                       sum(replay, &ReplayRow::mismatches));
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

std::string replay_table(const Replay& replay, bool color) {
    Table table({"what", "cases", "mismatches"});
    std::string_view part;
    for (const ReplayRow& r : replay.rows) {
        if (r.part != part) table.add({fmt::format("{}:", part = r.part), "", ""});
        table.add({"  " + r.name, fmt::format("{}", r.cases), fmt::format("{}", r.mismatches)});
    }
    std::string text = table.text(color);
    for (const ReplayRow& r : replay.rows)
        if (r.first) text += wrapped(fmt::format("{}: {}", r.name, first_of(r)), 4) + "\n";
    for (const SpeedRow& s : replay.speeds) text += fmt::format("{}: {:.1f} {}; {}\n", s.name, s.value, s.unit, s.note);
    return text + fmt::format("{}: {}\n", subject(replay.options.device), verdict(replay));
}

std::string replay_json(const Replay& replay, const std::string& command) {
    using Json = nlohmann::ordered_json;
    const CudaDevice& d = replay.options.device;
    Json device = {{"name", d.name}, {"hardware", !d.is_host()}};
    if (!d.is_host())
        device.update(Json{{"capability", fmt::format("{}.{}", d.major, d.minor)},
                           {"driver", d.driver},
                           {"memory", d.memory},
                           {"bandwidth", d.bandwidth}});
    Json rows = Json::array(), speeds = Json::array();
    for (const ReplayRow& r : replay.rows) {
        Json row = {{"part", r.part}, {"name", r.name}, {"cases", r.cases}, {"mismatches", r.mismatches}};
        if (!r.note.empty()) row["note"] = r.note;
        if (r.first)
            row["first"] = {{"where", r.first->where},
                            {"got", fmt::format("{:#010x}", r.first->got)},
                            {"expected", fmt::format("{:#010x}", r.first->want)}};
        rows.push_back(row);
    }
    for (const SpeedRow& s : replay.speeds)
        speeds.push_back({{"name", s.name}, {"value", s.value}, {"unit", s.unit}, {"note", s.note}});
    return json_text({{"schema_version", 1},
                      {"command", command},
                      {"version", AMPSCOPE_VERSION},
                      {"device", device},
                      {"quick", replay.options.quick},
                      {"cases", sum(replay, &ReplayRow::cases)},
                      {"mismatches", sum(replay, &ReplayRow::mismatches)},
                      {"rows", rows},
                      {"speed", speeds}});
}

std::string replay_markdown(const Replay& replay, const std::string& command) {
    std::string text =
        fmt::format("# Cross-check: {}\n\nMade by `{}` of ampscope {}. {}.\n", subject(replay.options.device),
                    printable(command), AMPSCOPE_VERSION, verdict(replay));
    if (replay.options.device.is_host())
        text += "\nNo CUDA device took part. On a machine that has one, `tools/check --device` builds for it, runs "
                "this and writes its report here.\n";
    if (replay.options.quick) text += "\nWith `--quick`: samples, not all inputs.\n";
    std::string_view part;
    for (const ReplayRow& r : replay.rows) {
        if (r.part != part)
            text += fmt::format("\n## {}\n\n| what | cases | mismatches | |\n|---|---:|---:|---|\n", part = r.part);
        text += fmt::format("| {} | {} | {} | {} |\n", r.name, r.cases, r.mismatches,
                            r.first ? first_of(r) + (r.note.empty() ? "" : "; " + r.note) : r.note);
    }
    if (!replay.speeds.empty()) text += "\n## speed\n\n| what | | |\n|---|---:|---|\n";
    for (const SpeedRow& s : replay.speeds)
        text += fmt::format("| {} | {:.1f} {} | {} |\n", s.name, s.value, s.unit, s.note);
    return text;
}

} // namespace amp::crosscheck_tool

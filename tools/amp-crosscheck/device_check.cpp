#include <ampscope/tools/amp-crosscheck/device_check.h>

#include <algorithm>
#include <iterator>

namespace amp::crosscheck_tool {

bool DeviceCheck::agrees() const {
    return std::ranges::none_of(rows, [](const CheckRow& r) { return r.mismatches > 0; });
}

void CheckRows::put(std::string_view part, std::string name, const std::function<void(CheckRow&)>& compare) {
    const auto known =
        std::ranges::find_if(earlier_, [&](const CheckRow& r) { return r.part == part && r.name == name; });
    CheckRow row{.part = std::string(part), .name = std::move(name)};
    if (known != earlier_.end()) row = *known;
    else compare(row);
    check_.rows.push_back(std::move(row));
    progress_(check_);
}

void CheckRows::put(std::string_view part, const std::function<std::vector<CheckRow>()>& compare) {
    std::vector<CheckRow> rows;
    std::ranges::copy_if(earlier_, std::back_inserter(rows), [&](const CheckRow& r) { return r.part == part; });
    if (rows.empty()) rows = compare();
    std::ranges::move(rows, std::back_inserter(check_.rows));
    progress_(check_);
}

DeviceCheck check_device(const CheckOptions& options, const std::vector<CheckRow>& earlier,
                         const CheckProgress& progress) {
    DeviceCheck check{.options = options};
    CheckRows rows(check, earlier, progress);
    const auto wants = [&](std::string_view part) {
        return options.parts.empty() || std::ranges::find(options.parts, part) != options.parts.end();
    };
    if (wants("conversions")) check_conversions(rows);
    if (wants("ops")) check_ops(rows);
    if (wants("accumulators")) check_accumulators(rows);
    if (wants("training")) check_training(rows);
    if (wants("speed") && !options.device.is_host()) measure_speed(check);
    check.finished = true;
    return check;
}

} // namespace amp::crosscheck_tool

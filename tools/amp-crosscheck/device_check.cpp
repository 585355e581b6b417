#include <ampscope/tools/amp-crosscheck/device_check.h>

#include <algorithm>

namespace amp::crosscheck_tool {

bool DeviceCheck::agrees() const {
    return std::ranges::none_of(rows, [](const CheckRow& r) { return r.mismatches > 0; });
}

DeviceCheck check_device(const CheckOptions& options, const CheckProgress& progress) {
    DeviceCheck check{.options = options};
    const auto wants = [&](std::string_view part) {
        return options.parts.empty() || std::ranges::find(options.parts, part) != options.parts.end();
    };
    if (wants("conversions")) check_conversions(check, progress);
    if (wants("ops")) check_ops(check, progress);
    if (wants("accumulators")) check_accumulators(check, progress);
    if (wants("training")) check_training(check, progress);
    if (wants("speed") && !options.device.is_host()) measure_speed(check);
    return check;
}

} // namespace amp::crosscheck_tool

#include <ampscope/sim/findings/alarms.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

namespace amp {

std::vector<std::string> alarm_lines(std::span<const NamedAlarm> alarms) {
    using Line = std::pair<std::string, std::vector<std::string>>;
    std::vector<Line> by_text;
    for (const NamedAlarm& alarm : alarms) {
        auto found = std::ranges::find(by_text, alarm.text, &Line::first);
        if (found == by_text.end()) found = by_text.insert(found, {alarm.text, {}});
        found->second.push_back(alarm.name);
    }
    std::vector<std::string> lines;
    for (const auto& [text, names] : by_text) lines.push_back(fmt::format("{}: {}", fmt::join(names, ", "), text));
    return lines;
}

} // namespace amp

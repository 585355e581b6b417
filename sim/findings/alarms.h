// Alarms in words: what is wrong with which run or loss scaler.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace amp {

struct NamedAlarm {
    std::string name; ///< what the alarm is about: "torch"
    std::string text; ///< what is wrong: "never grows: ..."
};

/// One line for each text, with the names of all that it is true of, in the order of their first: "apex, torch: never
/// grows: ...".
std::vector<std::string> alarm_lines(std::span<const NamedAlarm> alarms);

} // namespace amp

#include <ampscope/tools/amp-crosscheck/replay.h>

#include <algorithm>

namespace amp::crosscheck_tool {

bool Replay::agrees() const {
    return std::ranges::none_of(rows, [](const ReplayRow& r) { return r.mismatches > 0; });
}

Replay replay(const ReplayOptions& options, const ReplayProgress& progress) {
    Replay replay{.options = options};
    const auto wants = [&](std::string_view part) {
        return options.parts.empty() || std::ranges::find(options.parts, part) != options.parts.end();
    };
    if (wants("conversions")) replay_conversions(replay, progress);
    if (wants("ops")) replay_ops(replay, progress);
    if (wants("accumulators")) replay_accumulators(replay, progress);
    if (wants("training")) replay_training(replay, progress);
    if (wants("speed") && !options.device.is_host()) measure_speed(replay);
    return replay;
}

} // namespace amp::crosscheck_tool

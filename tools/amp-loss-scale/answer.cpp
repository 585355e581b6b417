#include <ampscope/tools/amp-loss-scale/answer.h>

#include <algorithm>

namespace amp::loss_scale_tool {

namespace fs = std::filesystem;

LossScaleAnswer ask(const LossScaleToolOptions& options, const Tell& tell, const Watch& watch) {
    LossScaleAnswer answer;
    std::vector<std::string>& errors = answer.errors;
    std::vector<fs::path> paths;
    for (const fs::path& path : options.paths)
        for (fs::path& run : logged_runs(path, errors)) paths.push_back(std::move(run));
    std::ranges::for_each(errors, tell);
    const auto unread = for_each_input(paths, tell, [&](const fs::path& path) {
        answer.runs.push_back(loss_scale_findings(path, options, watch));
        const GradientLog& log = answer.runs.back().log;
        for (const std::string& warning : log.warnings) tell("warning: " + warning);
        std::ranges::for_each(log.errors, tell);
        errors.insert(errors.end(), log.errors.begin(), log.errors.end());
    });
    errors.insert(errors.end(), unread.begin(), unread.end());
    return answer;
}

} // namespace amp::loss_scale_tool

#include <ampscope/tools/amp-adam/answer.h>

#include <ampscope/sim/findings/recorded_run.h>

#include <algorithm>

namespace amp::adam_tool {

AdamAnswer ask(const AdamToolOptions& options, const Tell& tell, const Watch& watch) {
    AdamAnswer answer;
    std::vector<std::string>& errors = answer.errors;
    std::vector<std::filesystem::path> paths;
    const auto missing = for_each_input(options.paths, tell, [&](const std::filesystem::path& path) {
        for (std::filesystem::path& run : find_runs(path, errors)) paths.push_back(std::move(run));
    });
    std::ranges::for_each(errors, tell);
    errors.insert(errors.end(), missing.begin(), missing.end());
    const auto unread = for_each_input(paths, tell, [&](const std::filesystem::path& path) {
        answer.inputs.push_back(adam_findings(path, options, watch));
        const AdamFindings& f = answer.inputs.back();
        for (const std::string& warning : f.warnings) tell("warning: " + warning);
        std::ranges::for_each(f.errors, tell);
        errors.insert(errors.end(), f.errors.begin(), f.errors.end());
    });
    errors.insert(errors.end(), unread.begin(), unread.end());
    const auto is_single = [](const AdamFindings& f) { return f.basis == AdamBasis::stationary; };
    if (options.assumes && errors.empty() && std::ranges::none_of(answer.inputs, is_single))
        tell("warning: --assume-steps changes nothing: it is for a single gradient, and no input is one");
    return answer;
}

} // namespace amp::adam_tool

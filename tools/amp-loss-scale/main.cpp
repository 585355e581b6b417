// amp-loss-scale: what other loss scalers would have done with a recorded run. Build: tools/demo; then --help.
#include <ampscope/tools/amp-loss-scale/report.h>
#include <ampscope/tools/chart/terminal.h>
#include <ampscope/tools/output.h>

#include <algorithm>

namespace {

using namespace amp;
using namespace amp::loss_scale_tool;
namespace fs = std::filesystem;

int run(const LossScaleToolOptions& options, const Complain& complain) {
    std::vector<LossScaleFindings> logs;
    std::vector<std::string> errors;
    std::vector<fs::path> paths;
    for (const fs::path& path : options.paths)
        for (fs::path& run : logged_runs(path, errors)) paths.push_back(std::move(run));
    std::ranges::for_each(errors, complain);
    const auto unread = for_each_input(paths, complain, [&](const fs::path& path) {
        logs.push_back(loss_scale_findings(path, options, progress_bars()));
        const GradientLog& log = logs.back().log;
        for (const std::string& warning : log.warnings) complain("warning: " + warning);
        std::ranges::for_each(log.errors, complain);
        errors.insert(errors.end(), log.errors.begin(), log.errors.end());
    });
    errors.insert(errors.end(), unread.begin(), unread.end());
    if (!options.json.empty()) write_report(options.json, json_report(logs, errors, options));
    if (!options.svg.empty() && !logs.empty()) write_report(options.svg, svg_report(logs));
    if (options.json != "-" && options.svg != "-") print_text(terminal_report(logs, options, wants_color(stdout)));
    return errors.empty() ? 0 : 1;
}

} // namespace

int main(int argc, char** argv) {
    const Complain complain{"amp-loss-scale"};
    return exit_code(complain, [&] {
        LossScaleToolOptions options;
        if (const std::optional<int> exit = parse_command_line(argc, argv, options)) return *exit;
        return run(options, complain);
    });
}

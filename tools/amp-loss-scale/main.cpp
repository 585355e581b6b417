// amp-loss-scale: what other loss scalers would have done with a recorded run. Build: tools/demo; then --help.
#include <ampscope/sim/io/folder.h>
#include <ampscope/sim/io/text_file.h>
#include <ampscope/tools/amp-loss-scale/report.h>
#include <ampscope/tools/chart/terminal.h>
#include <ampscope/tools/output.h>

#include <algorithm>

namespace {

using namespace amp;
using namespace amp::loss_scale_tool;
namespace fs = std::filesystem;

/// A folder of run folders stands for them.
std::vector<fs::path> expanded(const std::vector<fs::path>& paths, std::vector<std::string>& errors) {
    std::vector<fs::path> all;
    for (const fs::path& path : paths) {
        std::vector<fs::path> runs;
        const auto visit = [&](const fs::path& below, bool is_folder) {
            std::error_code denied;
            const bool is_run = fs::exists(fs::symlink_status(below / "metrics.jsonl", denied));
            if (is_folder && denied == std::errc::permission_denied)
                errors.push_back(below.string() + ": cannot be searched: " + denied.message());
            else if (is_folder && is_run) runs.push_back(below);
            return false;
        };
        std::error_code none;
        if (fs::is_directory(path, none) && !is_there(path / "metrics.jsonl")) {
            std::vector<std::string> unlisted; // which reading the folder itself will say
            walk_folder(path, visit, unlisted);
        }
        if (runs.empty()) runs.push_back(path);
        all.insert(all.end(), runs.begin(), runs.end());
    }
    return all;
}

int run(const LossScaleOptions& options, const Complain& complain) {
    std::vector<ReplayedLog> logs;
    std::vector<std::string> errors;
    const std::vector<fs::path> paths = expanded(options.paths, errors);
    std::ranges::for_each(errors, complain);
    const auto unread = for_each_input(paths, complain, [&](const fs::path& path) {
        logs.push_back(replay_log(read_gradient_log(path, options), options));
        const GradientLog& log = logs.back().log;
        for (const std::string& warning : log.warnings) complain("warning: " + warning);
        std::ranges::for_each(log.errors, complain);
        errors.insert(errors.end(), log.errors.begin(), log.errors.end());
    });
    errors.insert(errors.end(), unread.begin(), unread.end());
    if (!options.json.empty()) write_report(options.json, json_report(logs, errors, options));
    if (!options.svg.empty() && !logs.empty()) write_report(options.svg, svg_report(logs, options));
    if (options.json != "-" && options.svg != "-") print_text(terminal_report(logs, options, wants_color(stdout)));
    return errors.empty() ? 0 : 1;
}

} // namespace

int main(int argc, char** argv) {
    const Complain complain{"amp-loss-scale"};
    return exit_code(complain, [&] {
        LossScaleOptions options;
        if (const std::optional<int> exit = parse_command_line(argc, argv, options)) return *exit;
        return run(options, complain);
    });
}

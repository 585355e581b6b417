// amp-loss-scale: what other loss scalers would have done with a recorded run. Build: tools/demo; then --help.
#include <ampscope/tools/chart/terminal.h>
#include <ampscope/tools/loss-scale/report.h>
#include <ampscope/tools/output.h>
#include <ampscope/tools/process.h>

#include <algorithm>

namespace {

using namespace amp;
namespace fs = std::filesystem;

/// A folder of run folders stands for them.
std::vector<fs::path> expanded(const std::vector<fs::path>& paths) {
    std::vector<fs::path> all;
    std::error_code none;
    for (const fs::path& path : paths) {
        std::vector<fs::path> runs;
        for (const fs::directory_entry& entry : fs::directory_iterator(path, none))
            if (fs::exists(entry.path() / "metrics.jsonl", none)) runs.push_back(entry.path());
        std::ranges::sort(runs);
        if (runs.empty()) runs.push_back(path);
        all.insert(all.end(), runs.begin(), runs.end());
    }
    return all;
}

int run(const LossScaleOptions& options, const Complain& complain) {
    std::vector<ReplayedLog> logs;
    const auto errors = for_each_input(expanded(options.paths), complain, [&](const fs::path& path) {
        logs.push_back(replay_log(read_gradient_log(path, options), options));
        for (const std::string& warning : logs.back().log.warnings) complain("warning: " + warning);
    });
    if (!options.json.empty()) write_report(options.json, json_report(logs, errors, options));
    if (!options.svg.empty() && !logs.empty()) write_report(options.svg, svg_report(logs, options));
    if (options.json != "-" && options.svg != "-") print_text(terminal_report(logs, options, wants_color(stdout)));
    return errors.empty() ? 0 : 1;
}

} // namespace

int main(int argc, char** argv) {
    const Process process("amp-loss-scale");
    const Complain complain{"amp-loss-scale"};
    LossScaleOptions options;
    if (const std::optional<int> exit = parse_command_line(argc, argv, options)) return *exit;
    return exit_code(complain, [&] { return run(options, complain); });
}

// What the command line of amp-loss-scale says.
#pragma once

#include <ampscope/sim/findings/loss_scale.h>

namespace amp::loss_scale_tool {

struct LossScaleToolOptions : LossScaleOptions {
    std::vector<std::filesystem::path> paths;
    std::string json, svg, html; ///< empty: none; "-": standard output
    std::string command;         ///< the command as it was typed
};

/// Parses the command line. Returns an exit code where the program ends here (--help, --version); throws UsageError.
std::optional<int> parse_command_line(int argc, char** argv, LossScaleToolOptions& options);

} // namespace amp::loss_scale_tool

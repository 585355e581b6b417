// What the command line of amp-adam says.
#pragma once

#include <ampscope/sim/findings/adam.h>

namespace amp::adam_tool {

struct AdamToolOptions : AdamOptions {
    std::vector<std::filesystem::path> paths;
    bool assumes = false; ///< assumed_steps were asked for
    std::size_t worst = 10;
    std::string json, svg, html; ///< empty: none; "-": standard output
    std::string command;         ///< the command as it was typed
};

/// Parses the command line. Returns an exit code where the program ends here (--help, --version); throws UsageError.
std::optional<int> parse_command_line(int argc, char** argv, AdamToolOptions& options);

} // namespace amp::adam_tool

// What the command line of amp-diff says.
#pragma once

#include <ampscope/sim/findings/diff.h>

namespace amp::diff_tool {

struct DiffToolOptions : DiffOptions {
    std::filesystem::path a, b;
    std::size_t rows = 10;       ///< in tables; 0: all
    std::string json, svg, html; ///< empty: none; "-": standard output
    std::string command;         ///< the command as it was typed
};

/// Parses the command line. Returns an exit code where the program ends here (--help, --version); throws UsageError.
std::optional<int> parse_command_line(int argc, char** argv, DiffToolOptions& options);

} // namespace amp::diff_tool

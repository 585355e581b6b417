// The command line of amp-histogram.
#pragma once

#include <ampscope/sim/findings/histogram.h>

namespace amp::histogram_tool {

struct HistogramToolOptions : HistogramOptions {
    std::vector<std::filesystem::path> paths;
    std::vector<FormatSpec> elements; ///< the formats that the table of --block shows
    bool sample = false;              ///< no path was given: use the sample gradients of the project
    bool merge = false;               ///< the paths are reports of earlier runs
    /// Count this shard alone, K of N.
    std::optional<std::pair<std::uint64_t, std::uint64_t>> shard{};
    bool alone = false;     ///< count alone, though this is one of several processes of MPI
    std::size_t worst = 10; ///< rows in tables of tensors (0: all) and of worst blocks (0: 1,000)
    /// Output paths; empty: none; "-": standard output.
    std::string json, csv, svg, html, blocks;
    std::string command; ///< the command as it was typed
};

/// Parses the command line. Returns an exit code where the program ends here (--help, --version); throws UsageError.
std::optional<int> parse_command_line(int argc, char** argv, HistogramToolOptions& options);

} // namespace amp::histogram_tool

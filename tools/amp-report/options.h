// The command line of amp-report.
#pragma once

#include <ampscope/sim/findings/comparison.h>

#include <array>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace amp::report_tool {

/// What amp-report trains by itself; see standard.cpp.
inline constexpr std::array<std::string_view, 2> comparison_names = {"standard", "fp4"};

/// How much of it.
struct StandardOptions {
    std::string comparison = "standard"; ///< one of comparison_names
    int seeds = 8;
    std::optional<std::int64_t> steps; ///< none: as many as each network takes to show what it shows
};

struct ReportOptions {
    std::vector<std::filesystem::path> paths; ///< empty: train the standard comparison
    std::string html, markdown, json;         ///< output paths; empty: none; "-": standard output
    std::filesystem::path keep;               ///< folder that keeps the standard comparison's runs; empty: none
    StandardOptions standard;
    RecommendationOptions recommendation;
    ComparisonLimits limits;
    std::optional<double> recorded_scale; ///< loss scale of gradients in files; none: as they state it
    bool collectives = false;             ///< report on what adding up the paths' gradients costs, each step a replica
    std::size_t worst = 10;
    int threads = 0;
    std::string command; ///< the command as it was typed
};

/// Parses the command line. Returns an exit code where the program ends here (--help, --version); throws UsageError.
std::optional<int> parse_command_line(int argc, char** argv, ReportOptions& options);

} // namespace amp::report_tool

// What the command line of amp-histogram says.
#pragma once

#include <ampscope/formats/policy.h>
#include <ampscope/formats/spec.h>
#include <ampscope/sim/analysis/cast_count.h>
#include <ampscope/sim/analysis/gate.h>
#include <ampscope/sim/analysis/histogram.h>
#include <ampscope/sim/io/recording.h>

#include <filesystem>
#include <optional>
#include <regex>
#include <string>
#include <vector>

namespace amp::histogram_tool {

enum class Grouping { tensor, layer, step, file, all };

struct HistogramOptions {
    std::vector<std::filesystem::path> paths;
    bool sample = false; ///< no path was given: the gradients that come with the project
    OpenOptions open;

    std::vector<FormatSpec> formats;
    std::vector<double> scales; ///< besides 1 and the recommended one; sorted, each once
    std::optional<double> recorded_scale;
    Policy policy;
    RecommendationOptions recommendation;
    std::uint64_t block = 0; ///< elements; 0: no blocks
    bool error = false;
    bool merge = false; ///< the paths are reports of earlier runs

    std::optional<std::regex> tensor;
    std::optional<std::pair<std::int64_t, std::int64_t>> steps; ///< both included
    Grouping by = Grouping::tensor;
    std::size_t worst = 10;

    std::string json, csv, svg, html; ///< empty: none; "-": standard output
    std::vector<Gate> gates;
    int threads = 0;
    std::string command; ///< as it was typed

    [[nodiscard]] CastRule rule() const { return {policy.rounding, policy.flushes_output()}; }
    /// Whether counts follow from the histograms; if not they take a pass of their own.
    [[nodiscard]] bool from_histogram(double scale) const;
};

/// Parses the command line. Returns an exit code where the program ends here (--help, --version, wrong usage: 2).
std::optional<int> parse_command_line(int argc, char** argv, HistogramOptions& options);

} // namespace amp::histogram_tool

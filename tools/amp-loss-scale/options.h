// What the command line of amp-loss-scale says.
#pragma once

#include <ampscope/formats/spec.h>
#include <ampscope/sim/findings/loss_scale_replay.h>
#include <ampscope/sim/io/step_log.h>

namespace amp::loss_scale_tool {

struct NamedScaler {
    std::string name;
    LossScalerOptions options;
};

struct LossScaleOptions {
    std::vector<std::filesystem::path> paths;
    std::vector<NamedScaler> scalers;
    NamedScaler recorded_under; ///< whose scale a log of overflows without a scale was made under
    FormatSpec format;
    LogColumns columns;
    RecommendationOptions recommendation;
    bool sweep = false;
    std::string json, svg; ///< empty: none; "-": standard output
    int threads = 0;
};

/// Parses the command line. Returns an exit code where the program ends here (--help, --version, wrong usage: 2).
std::optional<int> parse_command_line(int argc, char** argv, LossScaleOptions& options);

} // namespace amp::loss_scale_tool

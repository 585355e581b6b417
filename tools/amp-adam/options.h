// What the command line of amp-adam says.
#pragma once

#include <ampscope/sim/io/recording.h>
#include <ampscope/sim/optim/optimizer.h>

#include <regex>

namespace amp::adam_tool {

struct AdamToolOptions {
    std::vector<std::filesystem::path> paths;
    std::vector<double> eps;
    std::vector<FormatSpec> states, weights;   ///< FP32 is the first of the states
    std::optional<OptimizerOptions> optimizer; ///< none: as run.json says, else AdamW
    std::optional<double> learning_rate, beta1, beta2, usual_eps;
    std::optional<std::int64_t> step; ///< that is asked about; none: the last one recorded
    std::int64_t assumed_steps = 200; ///< of a single gradient
    bool assumes = false;             ///< they were asked for
    std::optional<std::regex> tensor;
    std::size_t worst = 10;
    std::string json, svg; ///< empty: none; "-": standard output
    int threads = 0;
};

/// What amp-adam asks by default: eps from 1e-4 to 1e-15, state and weights in FP32, BF16 and FP16.
AdamToolOptions standard_question();

/// Parses the command line. Returns an exit code where the program ends here (--help, --version, wrong usage: 2).
std::optional<int> parse_command_line(int argc, char** argv, AdamToolOptions& options);

} // namespace amp::adam_tool

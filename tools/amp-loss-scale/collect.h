// From run folders, recorded gradients and logs to what is known of each step.
#pragma once

#include <ampscope/tools/amp-loss-scale/options.h>

namespace amp::loss_scale_tool {

/// One run.
struct GradientLog {
    std::string name;                  ///< as it was given
    std::string recorded;              ///< how, in words: "amp-fp16 under torch, from 65536 on"
    std::vector<GradientStep> steps;   ///< ascending; hidden ones stand for themselves and the gap behind them
    std::int64_t recorded_steps = 0;   ///< those that are not hidden
    std::int64_t hidden_steps = 0;     ///< of which nothing is known: their lines cannot be read
    std::vector<ScaleChange> scales;   ///< as recorded; empty where no scale was
    std::vector<std::int64_t> skipped; ///< as recorded
    std::vector<std::string> warnings;
    std::vector<std::string> errors; ///< files that cannot be read, and are left out
};

/// Throws FileError for an input of which nothing can be read.
GradientLog read_gradient_log(const std::filesystem::path& path, const LossScaleOptions& options);

} // namespace amp::loss_scale_tool

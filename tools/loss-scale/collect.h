// From run folders, recorded gradients and logs to what is known of each step.
#pragma once

#include <ampscope/tools/loss-scale/options.h>

namespace amp {

/// One run.
struct GradientLog {
    std::string name;                  ///< as it was given
    std::string recorded;              ///< how, in words: "amp-fp16 under torch, from 65536 on"
    std::vector<GradientStep> steps;   ///< ascending
    std::vector<ScaleChange> scales;   ///< as recorded; empty where no scale was
    std::vector<std::int64_t> skipped; ///< as recorded
    std::vector<std::string> warnings;
};

/// Throws FileError for an input of which nothing can be read.
GradientLog read_gradient_log(const std::filesystem::path& path, const LossScaleOptions& options);

} // namespace amp

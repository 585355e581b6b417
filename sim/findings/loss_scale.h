// What other loss scalers would have done in a recorded run: reads its files, replays scalers, recommends a scale.
#pragma once

#include <ampscope/sim/findings/alarms.h>
#include <ampscope/sim/findings/gradient_log.h>

#include <utility>

namespace amp {

/// Options for the questions about a run.
struct LossScaleOptions : GradientLogOptions {
    std::vector<NamedScaler> scalers;     ///< at least one
    RecommendationOptions recommendation; ///< how to recommend an initial scale
    bool sweep = false;                   ///< also replay constant scales and settings of torch's scaler
};

/// All dynamic scalers of the table, for gradients in FP16.
LossScaleOptions standard_loss_scale_options();

/// The answer for a run.
struct LossScaleFindings {
    GradientLog log;
    std::vector<ScalerReplay> replays; ///< one for each of the options' scalers, in their order
    std::vector<ScalerReplay> swept;   ///< sorted by their losses, smallest first; empty unless options.sweep
    /// From all recorded magnitudes or, without any, from the largest of each step: then it is the scale of the advice,
    /// although underflow is not known.
    Recommendation recommendation;
    std::string advice;              ///< a few sentences: the scale to start with, and what the scalers cost
    std::vector<std::string> alarms; ///< alarms of all replays; scalers with the same alarm share a line
};

/// Reads the run and replays it. Progress is reported in bytes, then in replays. Throws what read_gradient_log() and
/// the next function throw.
LossScaleFindings loss_scale_findings(const std::filesystem::path& path, const LossScaleOptions& options,
                                      const Watch& watch = {});

/// The same for a run that was read already. Throws std::invalid_argument if an option is outside its range, or there
/// is no scaler or no step; FileError if first and last step are longest_run or more apart.
LossScaleFindings loss_scale_findings(GradientLog log, const LossScaleOptions& options, const Watch& watch = {});

/// The problem in words that can follow the scaler's name: "reaches scale 0 in step 12: ...".
std::string alarm_text(const Alarm& alarm, const LossScalerOptions& options);

/// How often each tensor overflowed in the skipped steps, most often first; unknown tensors are "not recorded".
std::vector<std::pair<std::string, std::int64_t>> overflow_causes(const Replay& replay);

} // namespace amp

// What other loss scalers would have done with a recorded run: from its files to replays, a recommended scale, advice.
#pragma once

#include <ampscope/sim/findings/gradient_log.h>

#include <utility>

namespace amp {

/// What is asked of a run.
struct LossScaleOptions : GradientLogOptions {
    std::vector<NamedScaler> scalers;     ///< at least one
    RecommendationOptions recommendation; ///< of the scale to start at
    bool sweep = false;                   ///< also replay constant scales and settings of torch's scaler
};

/// Every dynamic scaler of the table, gradients in FP16.
LossScaleOptions standard_loss_scale_options();

/// What a run says of loss scalers.
struct LossScaleFindings {
    GradientLog log;
    std::vector<ScalerReplay> replays; ///< one for each of the options' scalers, in their order
    std::vector<ScalerReplay> swept;   ///< by what they lose, least first; empty unless options ask for a sweep
    Recommendation recommendation;     ///< of all recorded magnitudes; where there are none, of each step's largest
    std::string advice;                ///< where to start, and what the scalers cost, in a few sentences
};

/// Reads the run and replays it; the watch is told of bytes, then of replays. Throws as the next and as
/// read_gradient_log().
LossScaleFindings loss_scale_findings(const std::filesystem::path& path, const LossScaleOptions& options,
                                      const Watch& watch = {});

/// The same of a run that is known. Throws std::invalid_argument for options outside their ranges, no scaler or no
/// step; FileError where the last step is longest_run away from the first.
LossScaleFindings loss_scale_findings(GradientLog log, const LossScaleOptions& options, const Watch& watch = {});

/// What is wrong, in words that follow the name of the scaler: "reaches scale 0 in step 12: ...".
std::string alarm_text(const Alarm& alarm, const LossScalerOptions& options);

/// How often each tensor is what overflows in the skipped steps, most often first; "not recorded" is one of them.
std::vector<std::pair<std::string, std::int64_t>> overflow_causes(const Replay& replay);

} // namespace amp

// The standard comparison of amp-report: two networks in precisions that show what is known of them.
#pragma once

#include <ampscope/sim/train/experiment.h>
#include <ampscope/tools/amp-report/options.h>

#include <functional>
#include <string>
#include <vector>

namespace amp::report_tool {

/// One training: runs of one network and seed, side by side.
struct StandardTraining {
    std::string command; ///< the command of amp-train that does the same
    std::vector<TrainOptions> runs;
    Dataset data;
    ExperimentOptions experiment; ///< records in a folder that is relative
};

std::vector<StandardTraining> standard_comparison(const StandardOptions& options = {});

/// Trains them and records them in `folder`. `progress` is called with the number of steps done and of all steps.
/// Throws FileError.
void train(const std::vector<StandardTraining>& trainings, const std::filesystem::path& folder, int threads,
           const std::function<void(std::int64_t done, std::int64_t of)>& progress);

} // namespace amp::report_tool

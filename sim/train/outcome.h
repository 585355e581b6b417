// The end of an experiment: what came of each run, and the result.json that says so.
#pragma once

#include <ampscope/sim/train/experiment.h>

#include <span>
#include <string_view>
#include <vector>

namespace amp {

/// A run at its end.
struct Outcome {
    const Run* run = nullptr;
    Evaluation validation{};
    std::optional<double> distance{}; ///< |w - w0| / |w0| from the reference; none without one
    /// Whether Adam's eps, which the run's order of operations takes in the format of v, is zero there, or the square
    /// of Adafactor's in the format of the weights: then a weight whose gradients were 0 so far gets 0 / 0.
    bool eps_is_zero = false;
};

/// The first entries of run.json and of reports: the version of their schema, the program and its version.
nlohmann::ordered_json origin_of(std::string_view program);

/// Evaluates all runs, in their order; run folders get their result.json. Throws FileError.
std::vector<Outcome> finish(Experiment& experiment, const ExperimentOptions& options);

/// The report of amp-train --json.
nlohmann::ordered_json json_of(std::span<const Outcome> outcomes, const Dataset& data,
                               const ExperimentOptions& options);

} // namespace amp

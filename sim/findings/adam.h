// What eps and the formats of Adam's state do to a recorded run: from its files to counts over every tensor.
#pragma once

#include <ampscope/sim/base/progress.h>
#include <ampscope/sim/findings/adam_effects.h>

#include <filesystem>
#include <optional>
#include <regex>
#include <string>

namespace amp {

/// What is asked of a recording. The defaults are what amp-adam asks, but for the lists: see standard_adam_options().
struct AdamOptions {
    std::vector<double> eps;                   ///< the sweep; the run's own eps is added where it is not among them
    std::vector<FormatSpec> states;            ///< formats of m and v; FP32, which the others are measured by, is added
    std::vector<FormatSpec> weights;           ///< formats of the weights, in which updates may be lost
    std::optional<OptimizerOptions> optimizer; ///< none: as run.json says, else AdamW
    std::optional<double> learning_rate, beta1, beta2; ///< none: as run.json says, else the optimizer's
    std::optional<double> usual_eps;  ///< the eps that advice is about; none: as run.json says, else the optimizer's
    std::optional<std::int64_t> step; ///< the step that is asked about; none: the last one recorded
    std::int64_t assumed_steps = 200; ///< a single gradient is taken for that of so many steps in a row
    std::optional<std::regex> tensor; ///< only tensors whose names contain a match
    bool tensor_ratios = false; ///< every tensor keeps its EpsEffects::ratio, dozens of tables, not the total alone
    int threads = 0;            ///< 0: every core; results do not depend on it
};

/// Eps from 1e-4 to 1e-15 by factors of ten; state and weights in FP32, BF16 and FP16.
AdamOptions standard_adam_options();

/// How the state before the step that is asked about is known.
enum class AdamBasis : std::uint8_t {
    recorded,   ///< exact: it was recorded
    contiguous, ///< exact: every gradient from step 0 on was
    held,       ///< an estimate: gradients are taken to stay until the next recorded one
    stationary  ///< an estimate: there is one gradient, taken for that of every step
};
std::string_view name_of(AdamBasis basis);

/// One parameter.
struct AdamTensor {
    std::string name;    ///< the name of its gradient, as recorded: "h.0.weight.grad"
    AdamEffects effects; ///< counts of elements; without EpsEffects::ratio unless tensor_ratios are asked for
    std::optional<double> muted_from; ///< the smallest eps of the sweep that decides more than half of the steps
};

/// What a recording says of Adam.
struct AdamFindings {
    std::string name; ///< the path, as it was given
    AdamBasis basis = AdamBasis::stationary;
    std::optional<std::int64_t> step; ///< the step that is asked about; none: the gradients do not say
    AdamQuestion question;            ///< optimizer, sweep (descending) and formats (FP32 is the first of the states)
    std::vector<AdamTensor> tensors;  ///< in the order of the recording
    AdamEffects total;                ///< of all tensors
    std::optional<double> muted_from; ///< the same of all tensors together
    std::string advice; ///< which eps, which state, which weights, and whose steps eps mutes: a few sentences
    std::vector<std::string> warnings;
    std::vector<std::string> errors; ///< files that cannot be read, and are left out

    /// The state before the step is known, not estimated.
    [[nodiscard]] bool is_exact() const { return basis == AdamBasis::recorded || basis == AdamBasis::contiguous; }
    /// The eps in use, which advice is about.
    [[nodiscard]] double usual_eps() const { return question.eps[question.usual_eps]; }
};

/// Runs the optimizer over the recorded gradients of weights, up to the step that is asked about, and counts what eps
/// and each format do in that step. `path` is a run folder (with run.json, and perhaps state/: then nothing is
/// estimated), or a file or folder of gradients. Steps that metrics.jsonl says were skipped are no updates. The watch
/// is told of elements.
///
/// Throws FileError, or RecordingError with a line for each file, where no tensor can be read or selected;
/// std::invalid_argument for options outside their ranges, no eps, and for a run of SGD, which has no eps.
AdamFindings adam_findings(const std::filesystem::path& path, const AdamOptions& options, const Watch& watch = {});

} // namespace amp

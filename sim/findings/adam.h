// What eps and the formats of Adam's state do to a recorded run: reads its files and counts over every tensor.
#pragma once

#include <ampscope/sim/analysis/censoring.h>
#include <ampscope/sim/base/progress.h>
#include <ampscope/sim/findings/adam_effects.h>
#include <ampscope/sim/io/run_facts.h>

#include <filesystem>
#include <optional>
#include <regex>
#include <string>
#include <tuple>

namespace amp {

/// Whether the run's optimizer is Adam or one of its kind, whose names have "adam" in them ("adamw", "nadam"); so is
/// one of which run.json says nothing.
bool may_be_adam(const RunFacts& run);

/// Options of adam_findings(). The defaults are amp-adam's, except for the lists: see standard_adam_options().
struct AdamOptions {
    std::vector<double> eps;                   ///< values of eps to try; the run's own is added
    std::vector<AdamState> states;             ///< how m and v are kept; FP32 is added, the others are compared with it
    std::vector<FormatSpec> weights;           ///< formats of the weights, in which small updates may be lost
    std::optional<OptimizerOptions> optimizer; ///< if not given: as run.json says, else AdamW
    /// If not given: as the log says of the step and the parameter's group, or run.json, else the optimizer's.
    std::optional<double> learning_rate, beta1, beta2;
    std::optional<double> recorded_scale; ///< loss scale of the gradients, whatever their files state
    std::optional<double> usual_eps;      ///< the eps that advice is about; if not given: found in the same way
    std::optional<std::int64_t> step;     ///< the step to examine; if not given: the last one recorded
    std::int64_t assumed_steps = 200;     ///< a single recorded gradient is assumed to last so many steps
    std::optional<std::regex> tensor;     ///< only tensors whose names contain a match
    bool tensor_ratios = false;           ///< keep EpsEffects::ratio of every tensor: dozens of tables each
    int threads = 0;                      ///< 0: every core; results do not depend on it
};

/// eps from 1e-4 to 1e-15 in factors of ten; state and weights in FP32, BF16 and FP16.
AdamOptions standard_adam_options();

/// How the optimizer state before the examined step is known.
enum class AdamBasis : std::uint8_t {
    recorded,   ///< exactly: it was recorded
    contiguous, ///< exactly: every gradient from step 0 on was recorded
    checkpoint, ///< exactly: the examined step is the last one before a checkpoint, which has the state it left
    unnumbered, ///< estimated: a checkpoint that does not say how many steps were made; many, it is assumed
    held,       ///< estimated: each gradient is assumed to stay until the next recorded one
    stationary  ///< estimated: there is one gradient, which is assumed for every step
};
std::string_view name_of(AdamBasis basis);

/// The findings for one parameter.
struct AdamTensor {
    std::string name;            ///< the name of its gradient, as recorded: "h.0.weight.grad"; in a checkpoint its own
    OptimizerOptions settings{}; ///< what the optimizer had in the examined step for this parameter's group
    std::size_t usual_eps = 0;   ///< index in the question's eps of the eps in use
    AdamEffects effects;         ///< counts of elements; without EpsEffects::ratio unless tensor_ratios are asked for
    std::optional<double> muted_from; ///< the smallest eps that decides more than half of the steps
};

/// Where gradients that the optimizer used were first NaN or infinite themselves, by step and then by name.
struct NonfiniteGradient {
    std::string tensor;               ///< the name of the gradient, as recorded
    std::optional<std::int64_t> step; ///< none if the files name no step
};

/// The answer for a recording.
struct AdamFindings {
    std::string name; ///< the path as given
    AdamBasis basis = AdamBasis::stationary;
    /// The examined step, of a checkpoint the number of updates; none: the files do not name steps.
    std::optional<std::int64_t> step;
    /// The optimizer as the parameter group with most elements has it, sweep (eps descending) and formats (FP32 is the
    /// first state).
    AdamQuestion question;
    std::vector<std::string> unmatched; ///< parameters of a checkpoint that has weights, but none known to be theirs
    std::vector<AdamTensor> tensors;    ///< one for each parameter, in the order of the recording
    AdamEffects total;                  ///< sum over all tensors
    std::optional<double> muted_from;   ///< the same over all tensors together
    Censoring censoring; ///< what the records of the examined gradients hide, and so who would be decided by eps
    std::optional<NonfiniteGradient> nonfinite_gradient; ///< none: all gradients that were used are finite
    std::string advice; ///< sentences: which eps, state and weight formats to use; which tensors eps mutes
    std::vector<std::string> warnings;
    std::vector<std::string> errors; ///< files that cannot be read and were left out

    /// Whether the state before the step is known, not estimated.
    [[nodiscard]] bool is_exact() const { return basis < AdamBasis::unnumbered; }
    /// Whether the counts of lost updates are known, too. A checkpoint has the weights after its last step, not those
    /// before it: the step is made once more, from them, and what it loses is an estimate.
    [[nodiscard]] bool is_lost_exact() const { return is_exact() && basis != AdamBasis::checkpoint; }
    /// `unknown` if what eps decides depends on gradients that were recorded as zero.
    [[nodiscard]] Known known() const;
    /// The settings that differ from tensor to tensor: their names, least and largest values.
    [[nodiscard]] std::vector<std::tuple<std::string_view, double, double>> differing_settings() const;
    /// The eps in use in that group, which the advice is about.
    [[nodiscard]] double usual_eps() const { return question.eps[question.usual_eps]; }
    /// The tensors for most of whose elements the eps in use decides the step come first; of equal ones those with
    /// smaller gradients.
    [[nodiscard]] std::vector<const AdamTensor*> most_muted_first() const;
};

/// Runs the optimizer over the recorded gradients of weights up to the examined step, and counts what eps and each
/// format do in that step. Each update has the learning rate, betas, eps and weight decay that were recorded for its
/// step and parameter group. `path` is a run folder (with run.json, and perhaps state/, which makes the state known
/// exactly), a folder that holds one, a file or folder of gradients, or a checkpoint with the optimizer's state, in one
/// file or many: its examined step is the last that was made before it. Of several checkpoints it is the last one, by
/// the numbers that end their names, or the last one up to AdamOptions::step. Steps that metrics.jsonl calls skipped
/// are no updates, nor are those, where there is none, of which a gradient under a loss scale is not finite; their
/// gradients are not used, and the examined step is the last of the others. Progress is reported in elements.
///
/// Throws FileError, or RecordingError with a line for each file, if no tensor can be read or selected, if the path
/// holds several runs, which have nothing to do with each other, or several checkpoints that no step tells apart, if
/// all checkpoints are later than the step, and for the state of an optimizer that has no m and v;
/// std::invalid_argument for options outside their ranges, for an empty sweep, and for a run of SGD, Lion, Muon or
/// Adafactor, which have no eps of Adam's.
AdamFindings adam_findings(const std::filesystem::path& path, const AdamOptions& options, const Watch& watch = {});

} // namespace amp

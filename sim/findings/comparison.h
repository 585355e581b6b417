// Compares runs: those of one network on the same data form a group; those that differ only in the seed form a row of
// it.
#pragma once

#include <ampscope/sim/analysis/student.h>
#include <ampscope/sim/findings/adam.h>
#include <ampscope/sim/findings/spikes.h>

namespace amp {

/// How the runs of a row train, compared with FP32: by the interval of the difference of their final losses.
enum class Standing : std::uint8_t {
    reference,
    holds,   ///< the whole interval lies below the margin
    worse,   ///< the whole interval lies above the margin
    unclear, ///< the margin lies within the interval: these runs cannot tell
    broken,  ///< runs diverged (their loss became infinite or NaN) whose FP32 runs did not
    unknown  ///< there is no reference or no loss, or the numbers of steps differ
};
/// Its name in JSON and Python: "reference", "holds", "worse", "unclear", "broken" or "unknown".
std::string_view name_of(Standing standing);
/// The words of a report for it: "holds", "does not hold", "cannot be told" ...
std::string_view words_of(Standing standing);

struct Spread {
    double mean = 0, deviation = 0; ///< standard deviation of a sample; 0 for a single value
    std::size_t count = 0;
};
Spread spread_of(const std::vector<double>& values);

/// What an interval is based on.
enum class IntervalBasis : std::uint8_t {
    seeds, ///< pairs of runs with the same seed
    means, ///< runs whose seeds differ from the reference's: two independent samples; a single run's is infinite
    steps, ///< one pair: how much the difference varies along the second half of its steps, see mean_of_last(), and
           ///< what other seeds would add to that, as the runs of the standard comparison show
    none   ///< one pair without logs of both losses: the interval is infinite
};
/// Its name in JSON and Python: "seeds", "means", "steps" or "none".
std::string_view name_of(IntervalBasis basis);

/// The probability with which the seeds that a report asks for would tell: see samples_needed().
inline constexpr double planned_power = 0.8;

/// How much worse than another row a row is in one quantity: loss above its, or accuracy below its.
struct Difference {
    MeanInterval interval; ///< simultaneous: see ComparisonLimits::alpha
    IntervalBasis basis = IntervalBasis::none;
    Standing standing = Standing::unclear; ///< holds, worse or unclear
    /// If unclear: seeds that would tell with probability planned_power; none: no number up to 1,000 would.
    std::optional<std::size_t> seeds_needed{};
    /// Of one pair of runs: the number of independent steps that tell as much as its own, see effective_count().
    double independent_steps = 0;
};

struct ComparisonRow {
    std::string label;
    std::vector<const RecordedRun*> runs;       ///< several runs of one seed count as one, by their mean
    std::size_t seeds = 0, diverged = 0;        ///< number of seeds; of those with an infinite or NaN final loss
    std::optional<Spread> loss;                 ///< final loss of the seeds that did not diverge; none if none is left
    std::optional<Spread> validation, accuracy; ///< means of other quantities over the same seeds, if recorded
    std::optional<Difference> over, validation_over, accuracy_lost; ///< against the group's reference
    double skipped = 0;                                             ///< skipped steps per run
    std::optional<Share> underflow; ///< share of gradient elements that underflow, as counted during training
    Share lost_updates;
    std::optional<double> bytes_per_parameter;
    std::optional<double> distance; ///< relative distance of the weights from the reference's
    int operand_bits = 0;           ///< bits of the operands of matrix products; 0: unknown
    bool scales_loss = false;
    Standing standing = Standing::unknown;
    std::vector<RunSpikes> stability; ///< one for each of `runs`
};

/// A mistake of low precision that is known in the field, and its remedy: a row of known_effects().
struct KnownEffect {
    /// Where it shows: only in losses, as it acts on weights or its remedy begins after the first step; in the
    /// gradients of the first step, too; or there if sums are long enough.
    enum Shows : std::uint8_t { in_losses, in_gradients, in_sums };
    std::string_view claim;           ///< a sentence
    std::string_view loses, recovers; ///< precisions
    Shows shows = in_gradients;
    std::string_view reported_by = {}; ///< who reports it and in which paper; empty: it is known
};
std::span<const KnownEffect> known_effects();
/// Its name in Python: "losses", "gradients" or "sums".
std::string_view name_of(KnownEffect::Shows shows);

/// An effect in the runs of one group.
struct EffectFinding {
    const KnownEffect* effect = nullptr;
    const ComparisonRow *loses = nullptr, *recovers = nullptr;
    std::optional<Difference> difference; ///< how far `loses` ends above `recovers`; none if it diverged
    bool appears = false;                 ///< the interval lies above 0, or only `loses` diverged
    /// How much farther the gradients of the first step, where weights are still equal, are from FP32's in `loses`:
    /// |g - g0| / |g0|, against 0. None if the effect shows only in losses, or if that was not recorded.
    std::optional<Difference> gradient_error{};
    std::optional<std::int64_t> longest_sum{}; ///< number of products in the longest sum of `loses`, if sums lose
};

struct ComparisonGroup {
    std::string name;                         ///< network and data: "gpt on modular"
    std::vector<ComparisonRow> rows;          ///< in order of appearance
    const ComparisonRow* reference = nullptr; ///< the FP32 row; null if there is none
    double margin = 0;                        ///< how much a final loss may exceed the reference's and still hold
    std::string margin_basis;                 ///< how the margin was chosen, in words
    std::size_t comparisons = 0;              ///< number of rows compared with the reference
    std::vector<EffectFinding> effects;       ///< known effects of which both precisions are here
    const RecordedRun* evidence = nullptr;    ///< the run by whose gradients the group is judged: preferably not broken
                                              ///< and of FP32's range, then with most elements
    std::optional<AdamFindings> adam;         ///< Adam on the evidence's last recorded gradients
    std::vector<std::string> notes;           ///< differences between its runs other than precision and seed
};

/// What a comparison answers at a glance: a few words to one question, and one sentence why.
struct ShortAnswer {
    enum class State : std::uint8_t {
        settled, ///< the runs tell
        open,    ///< they do not, or no answer is good
        alarm    ///< something in the training itself is wrong
    };
    std::string question; ///< "Format", "Loss scale", "Adam's eps", "Training loop" or "Stability"
    std::string words;    ///< "amp-bf16", "FP16: 2^15", "1e-08"; "unknown"
    std::string reason;
    State state = State::settled;
};
/// Its name in JSON and Python: "settled", "open" or "alarm".
std::string_view name_of(ShortAnswer::State state);

/// What runs are judged by.
struct ComparisonLimits {
    /// The intervals of one quantity for all rows of a group hold the true differences at once with probability
    /// 1 - alpha or more: each has the level 1 - alpha / rows (Bonferroni).
    double alpha = 0.05;
    std::optional<double> loss_margin; ///< none: what FP32 itself gains in a tenth of its steps, see margin_basis
    double accuracy_margin = 0.01;
    SpikeLimits spikes;
};

/// How runs are compared.
struct ComparisonOptions {
    RecommendationOptions recommendation; ///< how to recommend a loss scale
    ComparisonLimits limits;
    std::filesystem::path base; ///< runs are named by their paths relative to it; empty: by their paths as given
    std::optional<double> recorded_scale{}; ///< loss scale of all gradients in files, whatever they state
    int threads = 0;                        ///< 0: every core; results do not depend on it
};

/// The result of comparing recorded runs. It can be moved, but not copied: groups point to runs.
struct ComparisonFindings {
    ComparisonLimits limits;             ///< the limits that differences were judged by
    std::vector<RecordedRun> runs;       ///< each run once
    std::vector<ComparisonGroup> groups; ///< groups of these runs, in order of appearance
    /// The verdict at a glance: on format, loss scale and eps one each, then alarms, if there are any.
    std::vector<ShortAnswer> answers;
    /// Sentences on which format, loss scale, eps and Adam state to use, and why, and on whether training was stable.
    std::vector<std::string> verdict;
    std::vector<std::string> precisions; ///< one sentence for each precision that was compared: how it stands, and why
    std::vector<std::string> effects;    ///< one sentence for each known effect: whether and how it appears
    std::vector<std::string>
        alarms; ///< one line for the spikes of a kind of each row: where, by how much, which tensor
    std::vector<std::string> errors; ///< inputs and files that cannot be read and were left out
    std::vector<std::string> warnings;

    ComparisonFindings() = default;
    ComparisonFindings(ComparisonFindings&&) = default;
    ComparisonFindings& operator=(ComparisonFindings&&) = default;
    ComparisonFindings(const ComparisonFindings&) = delete;
    ComparisonFindings& operator=(const ComparisonFindings&) = delete;
    ~ComparisonFindings() = default;
};

/// Compares run folders, folders that contain them, and gradients in files. A run that occurs twice (named twice,
/// copied, or copied at an earlier time) counts once. What cannot be read is listed in errors; without any run there
/// are no groups. Progress is reported in bytes, and in elements for Adam.
ComparisonFindings comparison_findings(const std::vector<std::filesystem::path>& paths,
                                       const ComparisonOptions& options, const Watch& watch = {});

/// The mean loss in `stretch` steps from `step` on.
struct StretchLoss {
    std::int64_t step = 0;
    double mean = 0;
};
/// The means of the logged losses over the steps: each stretch begins with a logged step, and has a loss.
std::vector<StretchLoss> loss_curve(const RecordedRun& run, std::int64_t stretch);

/// The differences of two runs' losses, the first minus the second, in the steps in which both log finite ones.
std::vector<std::pair<std::int64_t, double>> step_differences(const RecordedRun& run, const RecordedRun& other);

/// The mean difference of losses in `stretch` steps from `step` on, over pairs of runs with the same seed.
struct StretchDifference {
    std::int64_t step = 0;
    MeanInterval interval;
};
/// The differences to the reference over the steps; each interval has the level 1 - alpha.
std::vector<StretchDifference> difference_curve(const ComparisonRow& row, const ComparisonRow& reference,
                                                std::int64_t stretch, double alpha);

/// How stable the runs of a row were, together.
struct RowStability {
    std::size_t alarmed = 0;                     ///< runs with a spike
    std::optional<std::int64_t> not_finite_from; ///< the first step that is not finite in one of them
    std::optional<double> usual, largest;        ///< median and largest size of gradients over their level
    std::int64_t largest_in = 0;                 ///< the step in which gradients were largest
};
RowStability stability_of(const ComparisonRow& row);

/// The sizes of gradients over their level in `stretch` steps from `step` on, over all runs of a row.
struct StretchSizes {
    std::int64_t step = 0;
    double least = 0, median = 0, largest = 0;
};
std::vector<StretchSizes> gradient_curve(const ComparisonRow& row, std::int64_t stretch);

/// Computes groups and verdict from `findings.runs`, which may have been read one by one with read_run().
void compare(ComparisonFindings& findings, const ComparisonOptions& options, const Watch& watch = {});

} // namespace amp

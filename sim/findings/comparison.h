// Compares runs: those of one network on the same data form a group; those that differ only in the seed form a row of
// it.
#pragma once

#include <ampscope/sim/findings/adam.h>
#include <ampscope/sim/findings/recorded_run.h>

namespace amp {

/// How the runs of a row train, compared with FP32.
enum class Standing : std::uint8_t {
    reference,
    holds,  ///< the final loss exceeds the reference's by less than the group's bound
    worse,  ///< it exceeds it by more
    broken, ///< the final loss is infinite or NaN
    unknown ///< there is no reference or no loss, or the numbers of steps differ
};
/// "reference", "holds", "worse", "broken" or "unknown".
std::string_view name_of(Standing standing);

struct Spread {
    double mean = 0, deviation = 0; ///< standard deviation of a sample; 0 for a single value
    std::size_t count = 0;
};
Spread spread_of(const std::vector<double>& values);

struct ComparisonRow {
    std::string label;
    std::vector<const RecordedRun*> runs; ///< several runs of one seed count as one, by their mean
    std::optional<Spread> loss;           ///< final loss; none if no run logs it or one is not finite
    double excess = 0;                    ///< excess of the final loss over the reference's, of runs with the same
                                          ///< seeds if there are any
    std::optional<Spread> validation, accuracy;
    double skipped = 0;             ///< skipped steps per run
    std::optional<Share> underflow; ///< share of gradient elements that underflow, as counted during training
    Share lost_updates;
    std::optional<double> bytes_per_parameter;
    std::optional<double> distance; ///< relative distance of the weights from the reference's
    int operand_bits = 0;           ///< bits of the operands of matrix products; 0: unknown
    bool scales_loss = false;
    Standing standing = Standing::unknown;
};

struct ComparisonGroup {
    std::string name;                         ///< network and data: "gpt on modular"
    std::vector<ComparisonRow> rows;          ///< in order of appearance
    const ComparisonRow* reference = nullptr; ///< the FP32 row; null if there is none
    double bound = 0;                         ///< how much a final loss may exceed the reference's and still hold
    std::string bound_basis;                  ///< how the bound was chosen, in words
    const RecordedRun* evidence = nullptr;    ///< the run by whose gradients the group is judged: preferably not broken
                                              ///< and of FP32's range, then with most elements
    std::optional<AdamFindings> adam;         ///< Adam on the evidence's last recorded gradients
    std::vector<std::string> notes;           ///< differences between its runs other than precision and seed
};

/// How runs are compared.
struct ComparisonOptions {
    RecommendationOptions recommendation; ///< how to recommend a loss scale
    std::filesystem::path base; ///< runs are named by their paths relative to it; empty: by their paths as given
    int threads = 0;            ///< 0: every core; results do not depend on it
};

/// The result of comparing recorded runs. It can be moved, but not copied: groups point to runs.
struct ComparisonFindings {
    std::vector<RecordedRun> runs;       ///< each run once
    std::vector<ComparisonGroup> groups; ///< groups of these runs, in order of appearance
    /// Sentences on which format, loss scale, eps and Adam state to use, and why.
    std::vector<std::string> verdict;
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

/// Computes groups and verdict from `findings.runs`, which may have been read one by one with read_run().
void compare(ComparisonFindings& findings, const ComparisonOptions& options, const Watch& watch = {});

} // namespace amp

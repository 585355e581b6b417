// Runs side by side: those of one network on the same data are a group, those that differ in the seed alone a row.
#pragma once

#include <ampscope/sim/findings/adam.h>
#include <ampscope/sim/findings/recorded_run.h>

namespace amp {

/// How a row trains, measured by FP32's.
enum class Standing : std::uint8_t {
    reference,
    holds,  ///< its final loss exceeds the reference's by less than the group's bound
    worse,  ///< by more
    broken, ///< it is not finite
    unknown ///< no reference, no loss, or another number of steps
};

struct Spread {
    double mean = 0, deviation = 0; ///< of a sample; 0 for one
    std::size_t count = 0;
};
Spread spread_of(const std::vector<double>& values);

struct ComparisonRow {
    std::string label;
    std::vector<const RecordedRun*> runs; ///< those of one seed stand for one: their mean counts
    std::optional<Spread> loss;           ///< final; none if no run logs it, or one is not finite
    double excess = 0;                    ///< of the final loss over the reference's, of the same seeds where there are
    std::optional<Spread> validation, accuracy;
    double skipped = 0;             ///< steps a run
    std::optional<Share> underflow; ///< of gradients, as counted while training
    Share lost_updates;
    std::optional<double> bytes_per_parameter;
    std::optional<double> distance; ///< of the weights from the reference's
    int operand_bits = 0;           ///< of matrix products; 0: not known
    bool scales_loss = false;
    Standing standing = Standing::unknown;
};

struct ComparisonGroup {
    std::string name;                         ///< "gpt on modular"
    std::vector<ComparisonRow> rows;          ///< in the order of their appearance
    const ComparisonRow* reference = nullptr; ///< in FP32
    double bound = 0;                         ///< by which a final loss may exceed the reference's and still hold
    std::string bound_basis;                  ///< where that is from, in words
    const RecordedRun* evidence = nullptr;    ///< whose gradients the group is judged by: the widest format, then most
    std::optional<AdamFindings> adam;         ///< of the evidence's last recorded gradients
    std::vector<std::string> notes;           ///< what differs between its runs besides precision and seed
};

/// How runs are compared.
struct ComparisonOptions {
    RecommendationOptions recommendation; ///< of a loss scale
    std::filesystem::path base; ///< runs are called by their paths from here; empty: by their paths as they are
    int threads = 0;            ///< 0: every core; results do not depend on it
};

/// What recorded runs say of precisions. It may be moved, but not copied: groups point to runs.
struct ComparisonFindings {
    std::vector<RecordedRun> runs;       ///< each once
    std::vector<ComparisonGroup> groups; ///< of these runs, in the order of their appearance
    /// Which format, which loss scale, which eps and state of Adam, and why: for each question a sentence or more.
    std::vector<std::string> verdict;
    std::vector<std::string> errors; ///< inputs and files that cannot be read, and are left out
    std::vector<std::string> warnings;

    ComparisonFindings() = default;
    ComparisonFindings(ComparisonFindings&&) = default;
    ComparisonFindings& operator=(ComparisonFindings&&) = default;
    ComparisonFindings(const ComparisonFindings&) = delete;
    ComparisonFindings& operator=(const ComparisonFindings&) = delete;
    ~ComparisonFindings() = default;
};

/// Compares run folders, folders of them, and gradients in files. A run that comes twice (named twice, copied, or
/// copied at an earlier time) counts once. What cannot be read is among the errors; without any run there are no
/// groups. The watch is told of bytes, and of elements where Adam is asked.
ComparisonFindings comparison_findings(const std::vector<std::filesystem::path>& paths,
                                       const ComparisonOptions& options, const Watch& watch = {});

/// Groups and verdict of `findings.runs`, which may have been read one by one; see read_run().
void compare(ComparisonFindings& findings, const ComparisonOptions& options, const Watch& watch = {});

} // namespace amp

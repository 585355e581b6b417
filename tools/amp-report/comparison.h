// Runs side by side: those of one network on the same data are a group, those that differ in the seed alone a row.
#pragma once

#include <ampscope/sim/findings/adam.h>
#include <ampscope/tools/amp-report/run.h>

namespace amp::report_tool {

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

struct Row {
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

struct Group {
    std::string name;                      ///< "gpt on modular"
    std::vector<Row> rows;                 ///< in the order of their appearance
    const Row* reference = nullptr;        ///< in FP32
    double bound = 0;                      ///< by which a final loss may exceed the reference's and still hold
    std::string bound_basis;               ///< where that is from, in words
    const RecordedRun* evidence = nullptr; ///< whose gradients the group is judged by: the widest format, then most
    std::optional<AdamFindings> adam;      ///< of the evidence's last recorded gradients
    std::vector<std::string> notes;        ///< what differs between its runs besides precision and seed
};

/// Takes out runs that come twice: a folder that is named twice, or beside one that it is in, its copy, or a copy of an
/// earlier time. Two runs are the same if their configurations differ in nothing that trains otherwise (the seed aside,
/// since a copy proves nothing whatever it says) and the log of one has all steps of the other, and tells the same of
/// them; without a log, if the bytes of their gradients are the same. The one with more steps stays, of equal ones that
/// with a result, then that with more gradients, and gets a warning that names the others. Returns these warnings.
std::vector<std::string> drop_repeats(std::vector<RecordedRun>& runs);

/// Groups of runs, in the order of their appearance. The runs must outlive them.
std::vector<Group> compare(const std::vector<RecordedRun>& runs);

/// What the page says first: which format, which loss scale, which eps and state, and why. One sentence or more each.
std::vector<std::string> verdict(const std::vector<Group>& groups, const RecommendationOptions& options);

} // namespace amp::report_tool

// Where two recordings begin to differ: pairs their tensors, compares them, and tells local error from drift.
#pragma once

#include <ampscope/sim/analysis/tensor_diff.h>
#include <ampscope/sim/findings/diff_gate.h>
#include <ampscope/sim/io/recording.h>

#include <regex>
#include <string>

namespace amp {

/// Options for comparing two recordings.
struct DiffOptions {
    OpenOptions open;                       ///< element types of files that do not name theirs
    std::optional<std::regex> tensor;       ///< only tensors whose names contain a match
    std::optional<double> a_scale, b_scale; ///< loss scales that the values contain; none: as the files say
    std::size_t worst = 10;                 ///< number of most distant elements to list for each tensor
    std::vector<DiffGate> gates;            ///< limits on the whole comparison
    int threads = 0;                        ///< 0: every core; results do not depend on it
};

/// A tensor that both recordings have.
struct PairedTensor {
    std::string name;                 ///< its name in A
    std::optional<std::int64_t> step; ///< its step in A; none if the file names no step
    TensorKind kind = TensorKind::weight_gradient;
    std::string a_dtype, b_dtype;     ///< names of element types
    std::vector<std::uint64_t> shape; ///< shape in A
    TensorDiff diff;
};

/// Where a difference between gradients of one step comes from.
enum class DiffOrigin : std::uint8_t {
    unknown, ///< unknown: the state before the step was not recorded
    local,   ///< the step itself: weights and optimizer state were equal before it
    drift    ///< earlier steps: the states before it already differed
};
std::string_view name_of(DiffOrigin origin);

/// The comparison of all pairs of one step.
struct StepDiff {
    std::optional<std::int64_t> step;
    std::size_t tensors = 0, differing = 0; ///< numbers of tensors
    TensorDiff diff;                        ///< over all of them, without lists of elements
    DiffOrigin origin = DiffOrigin::unknown;
    double state_distance = 0; ///< |a - b| / |a| of the states before the step, if the origin is drift
};

/// The outcome of one gate.
struct DiffGateResult {
    DiffGate gate;
    double value = 0;   ///< value of the gate's figure
    bool holds = false; ///< false for every gate if nothing could be compared
};

/// The result of comparing two recordings.
struct DiffFindings {
    std::vector<PairedTensor> pairs;         ///< sorted by step, then in A's order
    std::vector<StepDiff> steps;             ///< ascending
    std::vector<std::string> only_a, only_b; ///< tensors without a partner: "name, step 100"
    TensorDiff total;                        ///< over all pairs, without lists of elements
    std::vector<DiffGateResult> gates;       ///< in the order of the options
    std::vector<std::string> notes;          ///< differences between configurations and metrics of run folders
    std::vector<std::string> errors;         ///< files that cannot be read and were left out; nothing to pair
    std::vector<std::string> warnings;

    /// The first pair that differs; null if none does.
    [[nodiscard]] const PairedTensor* first() const;
    /// The pairs that differ, those with the element farthest apart in ulps first; of equal ones the larger norm of the
    /// difference.
    [[nodiscard]] std::vector<const PairedTensor*> farthest_first() const;
};

/// Compares the tensors of two files, folders or run folders. They are paired by file, name and step; those left by
/// name and step; the rest by name. Two recordings of one tensor each are always paired. Distances are those of
/// compare_tensors(). For run folders run.json and metrics.jsonl are compared, too. Progress is reported in elements.
///
/// What cannot be read is listed in errors. Throws std::invalid_argument for a number of threads outside its range.
DiffFindings diff_findings(const std::filesystem::path& a, const std::filesystem::path& b, const DiffOptions& options,
                           const Watch& watch = {});

} // namespace amp

// Where two recordings part: pairing their tensors, comparing them, and telling local error from drift.
#pragma once

#include <ampscope/sim/analysis/tensor_diff.h>
#include <ampscope/sim/io/recording.h>

#include <regex>
#include <string>

namespace amp {

/// How two recordings are compared.
struct DiffOptions {
    OpenOptions open;                       ///< element types of files that do not say theirs
    std::optional<std::regex> tensor;       ///< only tensors whose names contain a match
    std::optional<double> a_scale, b_scale; ///< the loss scales that the values still contain; none: as the files say
    std::size_t worst = 10;                 ///< so many of the elements farthest apart are listed, of each tensor
    int threads = 0;                        ///< 0: every core; results do not depend on it
};

/// One tensor of both recordings.
struct PairedTensor {
    std::string name;                 ///< in A
    std::optional<std::int64_t> step; ///< in A; none where the file does not say
    GradientKind kind = GradientKind::weight;
    std::string a_dtype, b_dtype;     ///< names of element types
    std::vector<std::uint64_t> shape; ///< in A
    TensorDiff diff;
};

/// What a difference of gradients in one step comes from.
enum class DiffOrigin : std::uint8_t {
    unknown, ///< the state before the step was not recorded
    local,   ///< weights and optimizer were the same before it: the step itself differs
    drift    ///< they had parted before
};
std::string_view name_of(DiffOrigin origin);

/// All pairs of one step.
struct StepDiff {
    std::optional<std::int64_t> step;
    std::size_t tensors = 0, differing = 0; ///< tensors
    TensorDiff diff;                        ///< of all of them, nothing listed
    DiffOrigin origin = DiffOrigin::unknown;
    double state_distance = 0; ///< |a - b| / |a| of the state before the step, where its origin is drift
};

/// Where two recordings differ.
struct DiffFindings {
    std::vector<PairedTensor> pairs;         ///< by step, then as A lists them
    std::vector<StepDiff> steps;             ///< ascending
    std::vector<std::string> only_a, only_b; ///< tensors without their like: "name, step 100"
    TensorDiff total;                        ///< of all pairs, nothing listed
    std::vector<std::string> notes;          ///< of run folders: where configurations and metrics differ
    std::vector<std::string> errors;         ///< files that cannot be read, and are left out; or that nothing pairs
    std::vector<std::string> warnings;

    /// The first pair that differs, if one does.
    [[nodiscard]] const PairedTensor* first() const;
};

/// Compares the tensors of two files, folders or run folders. They are paired by file, name and step, what is left by
/// name and step, the rest by name; two recordings of one tensor each in any case. Distances are those of
/// compare_tensors(). Of run folders run.json and metrics.jsonl are compared, too. The watch is told of elements.
///
/// What cannot be read is among the errors; std::invalid_argument is thrown for a number of threads out of range.
DiffFindings diff_findings(const std::filesystem::path& a, const std::filesystem::path& b, const DiffOptions& options,
                           const Watch& watch = {});

} // namespace amp

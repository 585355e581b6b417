// Pairing the tensors of two recordings, comparing them, and telling local error from drift.
#pragma once

#include <ampscope/sim/analysis/tensor_diff.h>
#include <ampscope/tools/amp-diff/options.h>

#include <string>

namespace amp::diff_tool {

/// One tensor of both recordings.
struct PairedTensor {
    std::string name;
    std::optional<std::int64_t> step;
    GradientKind kind = GradientKind::weight;
    std::string a_dtype, b_dtype;
    std::vector<std::uint64_t> shape;
    TensorDiff diff;
};

/// What a difference of gradients in one step comes from.
enum class Origin : std::uint8_t {
    unknown, ///< the state before the step was not recorded
    local,   ///< weights and optimizer were the same before it: the step itself differs
    drift    ///< they had parted before
};
std::string_view name_of(Origin origin);

struct StepDiff {
    std::optional<std::int64_t> step;
    std::size_t tensors = 0, differing = 0; ///< tensors
    TensorDiff diff;                        ///< of all of them
    Origin origin = Origin::unknown;
    double state_distance = 0; ///< |state of a - b| / |a|, of drift
};

struct DiffFindings {
    std::vector<PairedTensor> pairs; ///< by step, then as A lists them
    std::vector<StepDiff> steps;
    std::vector<std::string> only_a, only_b; ///< "name, step 100"
    TensorDiff total;
    std::vector<std::string> notes; ///< of runs: where configurations and metrics differ
    std::vector<std::string> errors, warnings;

    /// The first pair that differs, if one does.
    [[nodiscard]] const PairedTensor* first() const;
};

DiffFindings collect(const DiffOptions& options);

} // namespace amp::diff_tool

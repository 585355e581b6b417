// Adam's state in a checkpoint: m, v and the weights by the parameters they belong to, and the optimizer's settings.
#pragma once

#include <ampscope/sim/findings/detail/adam_source.h>
#include <ampscope/sim/io/recording.h>

namespace amp::detail {

struct CheckpointParameter {
    std::string name;
    RecordedTensor m, v;
    std::optional<RecordedTensor> step{}, weight{};
    OptimizerOptions settings{}; ///< those of its group, as far as the checkpoint has them
};

/// The parameters that have both m and v among the tensors of a checkpoint, by name; empty if it is no checkpoint of
/// Adam's. The weight is the optimizer's master copy, else the tensor of the parameter's name, with what stands before
/// it in the checkpoint ("model."). Where the optimizer counts its parameters, their names are those that it has for
/// them, else those of the tensors beside it that have the same shapes in the same order. What is not found, and values
/// that cannot be read, become warnings.
std::vector<CheckpointParameter> checkpoint_parameters(const std::vector<RecordedTensor>& tensors, OpenFiles& open,
                                                       const OptimizerOptions& usual,
                                                       std::vector<std::string>& warnings);

} // namespace amp::detail

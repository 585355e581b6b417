// Adam's state in a checkpoint: m, v and the weights by the parameters they belong to, and the optimizer's settings.
#pragma once

#include <ampscope/sim/findings/detail/adam_source.h>
#include <ampscope/sim/io/recording.h>

namespace amp::detail {

struct CheckpointParameter {
    std::string name;
    RecordedTensor m, v;
    std::optional<RecordedTensor> step{}, weight{};
    std::optional<double> updates{}; ///< the number of steps where it is no tensor
    bool is_unmatched = false;       ///< the checkpoint has weights, but it is not known which one is the parameter's
    OptimizerOptions settings{};     ///< those of its group, as far as the checkpoint has them
};

/// Whether there are recorded gradients among the tensors, of a step up to that one.
bool has_gradients(const std::vector<RecordedTensor>& tensors, const std::optional<std::int64_t>& step);

/// The tensors of the checkpoint that is examined: the last one, or the last one up to `step`; empty if there is no
/// optimizer's state, or where gradients were recorded up to `step` and no checkpoint. Throws FileError for `path` if
/// there are only later checkpoints, or several that no step tells apart: their states are in several folders, or have
/// a parameter in common.
std::vector<RecordedTensor> examined_checkpoint(const std::filesystem::path& path,
                                                const std::vector<RecordedTensor>& tensors,
                                                const std::optional<std::int64_t>& step);

/// The parameters that have both m and v among the tensors of a checkpoint, by name; empty if it is no checkpoint of
/// Adam's. The weight is the optimizer's master copy, else the tensor of the parameter's name, with what stands before
/// it in the checkpoint ("model."). Where the optimizer counts its parameters, their names are those that it has for
/// them, else those of the weights that CheckpointWeights::of_numbers() finds, else the numbers, without weights. What
/// is not found, and values that cannot be read, become warnings.
std::vector<CheckpointParameter> checkpoint_parameters(const std::vector<RecordedTensor>& tensors, OpenFiles& open,
                                                       const OptimizerOptions& usual,
                                                       std::vector<std::string>& warnings);

} // namespace amp::detail

// The tensors of a training that a run folder records, by kind, and files of them.
#pragma once

#include <ampscope/sim/io/recording.h>
#include <ampscope/sim/train/trainer.h>

#include <map>
#include <string>
#include <vector>

namespace amp::detail {

struct NamedTensor {
    std::string name; ///< in the file
    TensorId id;
    TensorKind kind;
};
using NamedTensors = std::vector<NamedTensor>;

NamedTensors gradients_of_replicas(const Trainer& trainer); ///< "replica_0.fc1.weight.grad", one after another
NamedTensors gradients_of(const Trainer& trainer);   ///< weights' gradients, then those of layers' outputs
NamedTensors activations_of(const Trainer& trainer); ///< the outputs of layers
NamedTensors weights_of(const Trainer& trainer);     ///< parameters as the optimizer keeps them
NamedTensors state_of(const Trainer& trainer);       ///< all that decides the next steps: weights and optimizer
/// The same as recorders write it: of a sharded optimizer the master weight by the weight's name, from which the weight
/// is gathered.
NamedTensors recorded_state_of(const Trainer& trainer);

/// What a file of recorded tensors says of them: schema version, step and kinds.
std::map<std::string, std::string> metadata_of(const NamedTensors& tensors, std::int64_t step);

/// Writes tensors in their own formats; for a checkpoint in FP32, sealed.
void write_tensors(const std::filesystem::path& file, const Trainer& trainer, const NamedTensors& tensors,
                   const std::map<std::string, std::string>& metadata, bool checkpoint = false);

} // namespace amp::detail

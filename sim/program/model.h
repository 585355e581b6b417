// The networks, which are functions that call ops on a Graph.
#pragma once

#include <ampscope/sim/program/dataset.h>
#include <ampscope/sim/program/graph.h>

namespace amp {

struct ModelOptions {
    std::string name = "gpt"; ///< a row of models()
    std::int64_t width = 64;  ///< number of units of hidden layers; channels of the first convolution
    std::int64_t depth = 2;   ///< blocks of the gpt, hidden layers of the mlp, convolutions of the cnn
    std::int64_t heads = 4;
    double dropout = 0;
    op::ActivationKind activation = op::ActivationKind::gelu_tanh;
    op::NormKind norm = op::NormKind::layer;
};

/// The tensors through which the host uses a network.
struct Network {
    TensorId inputs, targets;
    TensorId outputs;                 ///< logits or predictions
    TensorId loss;                    ///< scalar, mean over the batch
    std::vector<TensorId> kv_cache{}; ///< keys and values of attention, B x heads x T x C
};

struct ModelRow {
    std::string_view name, meaning;
    Network (*build)(Graph& g, const ModelOptions& options, const Dataset& data, std::int64_t batch);
    ModelOptions defaults;
};

std::span<const ModelRow> models();

/// The row of that name. Throws std::invalid_argument, listing the names, for any other.
const ModelRow& model(std::string_view name);

/// The initial values of a parameter: uniform or normal numbers that depend only on the seed, the parameter's number
/// and the element's index, rounded to the parameter's format.
std::vector<float> initial_values(const Parameter& parameter, std::size_t number, const TensorInfo& info,
                                  std::uint64_t seed);

} // namespace amp

// The networks, which are functions that call ops on a Graph.
#pragma once

#include <ampscope/sim/program/dataset.h>
#include <ampscope/sim/program/graph.h>

namespace amp {

struct ModelOptions {
    std::string name = "gpt"; ///< a row of models()
    std::int64_t width = 64;  ///< number of units of hidden layers; channels of the first convolution
    std::int64_t depth = 2;   ///< blocks of a decoder, hidden layers of the mlp, convolutions of the cnn
    std::int64_t heads = 4;
    double dropout = 0;
    op::ActivationKind activation = op::ActivationKind::gelu_tanh;
    op::NormKind norm = op::NormKind::layer;
    bool tied = false; ///< whether the table of tokens is the weight of a decoder's head, too, without bias
    /// Whether q, k and v of a decoder are one layer, and gate and up of the llama's MLP another.
    bool fused_projections = false;
    double norm_eps = 0;             ///< A decoder's norms add it; 0: 1e-5 for layer, 1e-6 for rms.
    std::string attention = "plain"; ///< a decoder's, as op::attention_options() reads it
    // What training adds to the loss of networks for classes: op::LossTerms.
    double label_smoothing = 0;
    double z_loss = 0;
    std::int64_t norm_groups = 0; ///< The resnet's group norm has so many; 0: batch norm.
    // Of the llama.
    std::int64_t kv_heads = 0; ///< heads of keys and values, which divide `heads`; 0: as many
    std::int64_t hidden = 0;   ///< units of the MLP; 0: 8 / 3 of the width, rounded up to a multiple of 32
    double rope_theta = 10000; ///< see op::Rope

    [[nodiscard]] std::int64_t groups() const { return kv_heads == 0 ? heads : kv_heads; }
    [[nodiscard]] std::int64_t hidden_units() const { return hidden == 0 ? (8 * width + 95) / 96 * 32 : hidden; }
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
    bool reads_tokens = false; ///< a decoder: its data are sequences of tokens, and its attention has a cache
};

std::span<const ModelRow> models();

/// The row of that name. Throws std::invalid_argument, listing the names, for any other.
const ModelRow& model(std::string_view name);

/// The initial values of a parameter: uniform or normal numbers that depend only on the seed, the parameter's number
/// and the element's index, rounded to the parameter's format.
std::vector<float> initial_values(const Parameter& parameter, std::size_t number, const TensorInfo& info,
                                  std::uint64_t seed);

} // namespace amp

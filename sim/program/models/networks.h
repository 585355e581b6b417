// The functions behind models(), one file each. Shape letters: B batch, T tokens, C channels or width.
#pragma once

#include <ampscope/sim/program/model.h>

namespace amp {

/// B x features -> one linear layer -> mean squared error.
Network linear_network(Graph& g, const ModelOptions& options, const Dataset& data, std::int64_t batch);
/// B x features -> `depth` hidden layers of `width` -> classes or numbers.
Network mlp_network(Graph& g, const ModelOptions& options, const Dataset& data, std::int64_t batch);
/// B x H x W x C -> two 3 x 3 convolutions of `width` and 2 `width` channels, each with ReLU and 2 x 2 max pooling ->
/// classes.
Network cnn_network(Graph& g, const ModelOptions& options, const Dataset& data, std::int64_t batch);
/// B x H x H x C -> a convolution of `width` channels, then `depth` residual blocks of two 3 x 3 convolutions with
/// batch or group norm; each but the first halves the image and doubles the channels, while that is larger than 2 x 2
/// -> the mean of all pixels -> classes (K. He et al., "Deep residual learning", 2016).
Network resnet_network(Graph& g, const ModelOptions& options, const Dataset& data, std::int64_t batch);
/// B x T token numbers -> a decoder with learned positions, normalisation before attention and before the MLP of 4
/// `width` hidden units -> the next token (Radford et al. 2019).
Network gpt_network(Graph& g, const ModelOptions& options, const Dataset& data, std::int64_t batch);

/// B x T token numbers -> a decoder with rotary positions, RMSNorm, a gated MLP and grouped-query attention, without
/// biases -> the next token (H. Touvron et al., "LLaMA", 2023).
Network llama_network(Graph& g, const ModelOptions& options, const Dataset& data, std::int64_t batch);

/// A linear layer with PyTorch's initial values: uniform within 1 / sqrt(number of inputs), for the bias, too.
TensorId linear_layer(Graph& g, std::string_view name, TensorId x, std::int64_t outputs);
/// Makes the tensors for inputs and targets of a batch.
Network batch_of(Graph& g, const Dataset& data, std::int64_t batch);
/// Adds the loss of these outputs: cross-entropy for classes, else the mean squared error.
void add_loss(Graph& g, Network& network, TensorId outputs, const ModelOptions& options, const Dataset& data);

} // namespace amp

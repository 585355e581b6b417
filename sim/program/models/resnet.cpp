#include <ampscope/sim/program/models/networks.h>

#include <cmath>
#include <stdexcept>
#include <string>

namespace amp {

namespace {

/// A convolution without bias, whose initial values keep the variance of gradients under ReLU (He et al. 2015, as in
/// torchvision: normal, with deviation sqrt(2 / (channels of the result * kernel^2))), and batch norm.
TensorId normed_conv(Graph& g, std::string_view name, TensorId x, std::int64_t channels, std::int64_t kernel,
                     std::int64_t stride) {
    const Graph::Scope scope = g.scope(name);
    const auto area = kernel * kernel;
    const Init he{Init::Kind::normal, std::sqrt(2 / static_cast<double>(channels * area))};
    const TensorId weight = g.parameter("weight", {channels, area * g[x].shape.back()}, he);
    x = op::conv2d(g, x, weight, {}, kernel, stride, kernel / 2);
    const Graph::Scope norm = g.scope("bn");
    const Init one{Init::Kind::constant, 1};
    const TensorId gain = g.parameter("weight", {channels}, one), bias = g.parameter("bias", {channels}, {});
    const TensorId mean = g.buffer("running_mean", {channels}, {});
    const TensorId variance = g.buffer("running_variance", {channels}, one);
    return op::batch_norm(g, x, gain, bias, mean, variance);
}

TensorId residual_block(Graph& g, std::string_view name, TensorId x, std::int64_t channels, std::int64_t stride,
                        op::ActivationKind activation) {
    const Graph::Scope scope = g.scope(name);
    TensorId y = op::activation(g, activation, normed_conv(g, "c1", x, channels, 3, stride));
    g.watch(y, "c1");
    y = normed_conv(g, "c2", y, channels, 3, 1);
    g.watch(y, "c2");
    const bool changes = stride > 1 || g[x].shape.back() != channels;
    const TensorId shortcut = changes ? normed_conv(g, "shortcut", x, channels, 1, stride) : x;
    const TensorId out = op::activation(g, activation, op::add(g, y, shortcut));
    g.watch(out, "residual");
    return out;
}

} // namespace

Network resnet_network(Graph& g, const ModelOptions& options, const Dataset& data, std::int64_t batch) {
    if (data.input.size() != 3 || data.classes == 0 || data.input[0] != data.input[1])
        throw std::invalid_argument("[resnet] expected images of height x height x channels and classes, got " +
                                    data.name);
    Network n = batch_of(g, data, batch);
    std::int64_t channels = options.width, stride = 1;
    TensorId x = op::activation(g, options.activation, normed_conv(g, "stem", n.inputs, channels, 3, 1));
    g.watch(x, "stem");
    for (std::int64_t i = 0; i < options.depth; ++i) {
        stride = i > 0 && g[x].shape[1] > 2 ? 2 : 1;
        channels *= stride;
        x = residual_block(g, "b." + std::to_string(i), x, channels, stride, options.activation);
    }
    x = op::pool(g, op::PoolKind::average, x, g[x].shape[1]);
    x = op::dropout(g, op::view(g, x, {batch, channels}), options.dropout);
    add_loss(g, n, linear_layer(g, "head", x, data.classes), options, data);
    g.watch(n.outputs, "head");
    return n;
}

} // namespace amp

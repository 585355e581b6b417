#include <ampscope/sim/program/models/networks.h>

#include <cmath>
#include <fmt/format.h>
#include <stdexcept>
#include <string>

namespace amp {

namespace {

/// Batch norm, or group norm, whose op has channels before pixels.
TensorId normalized(Graph& g, TensorId x, std::int64_t groups) {
    const Graph::Scope scope = g.scope(groups > 0 ? "gn" : "bn");
    const std::int64_t channels = g[x].shape.back();
    const Init one{Init::Kind::constant, 1};
    const TensorId gain = g.parameter("weight", {channels}, one), bias = g.parameter("bias", {channels}, {});
    if (groups > 0) {
        x = op::group_norm(g, op::transpose(g, x, {0, 3, 1, 2}), gain, bias, groups);
        return op::transpose(g, x, {0, 2, 3, 1});
    }
    const TensorId mean = g.buffer("running_mean", {channels}, {});
    const TensorId variance = g.buffer("running_variance", {channels}, one);
    return op::batch_norm(g, x, gain, bias, mean, variance);
}

/// A convolution without bias, whose initial values keep the variance of gradients under ReLU (He et al. 2015, as in
/// torchvision: normal, with deviation sqrt(2 / (channels of the result * kernel^2))), and its norm.
TensorId normed_conv(Graph& g, std::string_view name, TensorId x, std::int64_t channels, std::int64_t kernel,
                     std::int64_t stride, std::int64_t norm_groups) {
    const Graph::Scope scope = g.scope(name);
    const auto area = kernel * kernel;
    const Init he{Init::Kind::normal, std::sqrt(2 / static_cast<double>(channels * area))};
    const TensorId weight = g.parameter("weight", {channels, area * g[x].shape.back()}, he);
    x = op::conv2d(g, x, weight, {}, kernel, stride, kernel / 2);
    return normalized(g, x, norm_groups);
}

TensorId residual_block(Graph& g, std::string_view name, TensorId x, std::int64_t channels, std::int64_t stride,
                        const ModelOptions& options) {
    const Graph::Scope scope = g.scope(name);
    const std::int64_t groups = options.norm_groups;
    TensorId y = op::activation(g, options.activation, normed_conv(g, "c1", x, channels, 3, stride, groups));
    g.watch(y, "c1");
    y = normed_conv(g, "c2", y, channels, 3, 1, groups);
    g.watch(y, "c2");
    const bool changes = stride > 1 || g[x].shape.back() != channels;
    const TensorId shortcut = changes ? normed_conv(g, "shortcut", x, channels, 1, stride, groups) : x;
    const TensorId out = op::activation(g, options.activation, op::add(g, y, shortcut));
    g.watch(out, "residual");
    return out;
}

} // namespace

Network resnet_network(Graph& g, const ModelOptions& options, const Dataset& data, std::int64_t batch) {
    if (data.input.size() != 3 || data.classes == 0 || data.input[0] != data.input[1])
        throw std::invalid_argument("[resnet] expected images of height x height x channels and classes, got " +
                                    data.name);
    if (options.norm_groups < 0 || (options.norm_groups > 0 && options.width % options.norm_groups != 0))
        throw std::invalid_argument(fmt::format("[resnet] norm_groups: expected a divisor of the width {}, got {}",
                                                options.width, options.norm_groups));
    Network n = batch_of(g, data, batch);
    std::int64_t channels = options.width, stride = 1;
    TensorId x =
        op::activation(g, options.activation, normed_conv(g, "stem", n.inputs, channels, 3, 1, options.norm_groups));
    g.watch(x, "stem");
    for (std::int64_t i = 0; i < options.depth; ++i) {
        stride = i > 0 && g[x].shape[1] > 2 ? 2 : 1;
        channels *= stride;
        x = residual_block(g, "b." + std::to_string(i), x, channels, stride, options);
    }
    x = op::pool(g, op::PoolKind::average, x, g[x].shape[1]);
    x = op::dropout(g, op::view(g, x, {batch, channels}), options.dropout);
    add_loss(g, n, linear_layer(g, "head", x, data.classes), options, data);
    g.watch(n.outputs, "head");
    return n;
}

} // namespace amp

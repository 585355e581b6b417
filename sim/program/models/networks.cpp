#include <ampscope/sim/program/models/networks.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace amp {

TensorId linear_layer(Graph& g, std::string_view name, TensorId x, std::int64_t outputs) {
    const Graph::Scope scope = g.scope(name);
    const std::int64_t inputs = g[x].shape.back();
    const Init init{Init::Kind::uniform, 1 / std::sqrt(static_cast<double>(inputs))};
    const TensorId weight = g.parameter("weight", {outputs, inputs}, init), bias = g.parameter("bias", {outputs}, init);
    return op::linear(g, x, weight, bias);
}

Network batch_of(Graph& g, const Dataset& data, std::int64_t batch) {
    Shape input = data.input, target = data.target;
    input.insert(input.begin(), batch);
    target.insert(target.begin(), batch);
    return {.inputs = g.input("inputs", input),
            .targets = g.input("targets", target),
            .outputs = {},
            .loss = {},
            .kv_cache = {}};
}

void add_loss(Graph& g, Network& network, TensorId outputs, const ModelOptions& options, const Dataset& data) {
    if (data.classes == 0 && (options.label_smoothing != 0 || options.z_loss != 0))
        throw std::invalid_argument("[" + options.name + "] expected classes for label smoothing or z-loss, got " +
                                    data.name);
    network.outputs = outputs;
    network.loss = data.classes > 0
                       ? op::cross_entropy(g, outputs, network.targets, {options.label_smoothing, options.z_loss})
                       : op::mse_loss(g, outputs, network.targets);
}

Network linear_network(Graph& g, const ModelOptions& options, const Dataset& data, std::int64_t batch) {
    Network n = batch_of(g, data, batch);
    const TensorId x = op::view(g, n.inputs, {batch, element_count(data.input)});
    add_loss(g, n, linear_layer(g, "linear", x, data.classes > 0 ? data.classes : element_count(data.target)), options,
             data);
    return n;
}

Network mlp_network(Graph& g, const ModelOptions& options, const Dataset& data, std::int64_t batch) {
    Network n = batch_of(g, data, batch);
    TensorId x = op::view(g, n.inputs, {batch, element_count(data.input)});
    for (std::int64_t i = 0; i < options.depth; ++i) {
        const std::string name = "h." + std::to_string(i);
        x = op::activation(g, options.activation, linear_layer(g, name, x, options.width));
        x = op::dropout(g, x, options.dropout);
        g.watch(x, name);
    }
    add_loss(g, n, linear_layer(g, "head", x, data.classes > 0 ? data.classes : element_count(data.target)), options,
             data);
    g.watch(n.outputs, "head");
    return n;
}

Network cnn_network(Graph& g, const ModelOptions& options, const Dataset& data, std::int64_t batch) {
    if (data.input.size() != 3 || data.classes == 0)
        throw std::invalid_argument("[cnn] expected images of height x width x channels and classes, got " + data.name);
    Network n = batch_of(g, data, batch);
    TensorId x = n.inputs;
    for (std::int64_t i = 1; i <= options.depth; ++i) {
        const Graph::Scope scope = g.scope("c" + std::to_string(i));
        const std::int64_t patch = 9 * g[x].shape.back(), channels = std::min<std::int64_t>(i, 2) * options.width;
        const Init init{Init::Kind::uniform, 1 / std::sqrt(static_cast<double>(patch))};
        const TensorId weight = g.parameter("weight", {channels, patch}, init),
                       bias = g.parameter("bias", {channels}, init);
        x = op::activation(g, options.activation, op::conv2d(g, x, weight, bias, 3, 1, 1));
        if (i <= 2) x = op::pool(g, op::PoolKind::max, x, 2);
        g.watch(x, i <= 2 ? "pool" : "conv");
    }
    x = op::dropout(g, op::view(g, x, {batch, g[x].count() / batch}), options.dropout);
    add_loss(g, n, linear_layer(g, "head", x, data.classes), options, data);
    g.watch(n.outputs, "head");
    return n;
}

} // namespace amp

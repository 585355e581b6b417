#include <ampscope/sim/program/models/networks.h>

#include <cmath>
#include <stdexcept>

namespace amp {

namespace {

constexpr Init small{Init::Kind::normal, 0.02};

struct Gpt {
    // What linear layers read is watched, since that is what FP8 recipes cast, and so is what leaves a layer.
    Graph& g;
    const ModelOptions& options;
    std::int64_t batch, tokens; // B, T
    std::vector<TensorId>& kv_cache;

    TensorId linear_layer(std::string_view name, TensorId x, std::int64_t outputs, const Init& init = small,
                          bool biased = true) const {
        const Graph::Scope scope = g.scope(name);
        const TensorId weight = g.parameter("weight", {outputs, g[x].shape.back()}, init);
        return op::linear(g, x, weight, biased ? g.parameter("bias", {outputs}, {}) : TensorId{});
    }

    TensorId norm(std::string_view name, TensorId x) const {
        const Graph::Scope scope = g.scope(name);
        const Shape width = {options.width};
        const TensorId weight = g.parameter("weight", width, {Init::Kind::constant, 1});
        return options.norm == op::NormKind::rms ? op::rms_norm(g, x, weight)
                                                 : op::layer_norm(g, x, weight, g.parameter("bias", width, {}));
    }

    /// B x T x C -> B x heads x T x (C / heads).
    [[nodiscard]] TensorId heads_of(TensorId x) const {
        const std::int64_t h = options.heads;
        return op::transpose(g, op::view(g, x, {batch, tokens, h, options.width / h}), {0, 2, 1, 3});
    }

    /// Keys or values in the format in which a server keeps them.
    [[nodiscard]] TensorId cached(TensorId x) const {
        kv_cache.push_back(x);
        return g.through(g.precision().serving.kv_cache, x);
    }

    TensorId attention(TensorId x, const Init& residual) const {
        const Graph::Scope scope = g.scope("attn");
        const std::int64_t width = options.width;
        // A bias of the keys would add the same number to all scores of a query, which softmax cancels.
        const TensorId q = heads_of(linear_layer("q", x, width));
        const TensorId k = cached(heads_of(linear_layer("k", x, width, small, false)));
        const TensorId v = cached(heads_of(linear_layer("v", x, width)));
        const double factor = 1 / std::sqrt(static_cast<double>(width / options.heads));
        const TensorId scores = op::softmax(g, op::matmul(g, op::scale(g, q, factor), k, true), true);
        const TensorId mixed = op::matmul(g, scores, v);
        const TensorId joined = op::view(g, op::transpose(g, mixed, {0, 2, 1, 3}), {batch, tokens, width});
        g.watch(joined, "context", false);
        return op::dropout(g, linear_layer("o", joined, width, residual), options.dropout);
    }

    TensorId mlp(TensorId x, const Init& residual) const {
        const Graph::Scope scope = g.scope("mlp");
        const TensorId hidden = op::activation(g, options.activation, linear_layer("up", x, 4 * options.width));
        g.watch(hidden, "hidden", false);
        return op::dropout(g, linear_layer("down", hidden, options.width, residual), options.dropout);
    }

    [[nodiscard]] TensorId block(std::int64_t number, TensorId x) const {
        const Graph::Scope scope = g.scope("h." + std::to_string(number));
        // Initial values of layers that add to the residual stream are smaller, the more such layers there are.
        const Init residual{Init::Kind::normal, small.value / std::sqrt(2.0 * static_cast<double>(options.depth))};
        TensorId y = norm("ln1", x);
        g.watch(y, "ln1", false);
        y = attention(y, residual);
        g.watch(y, "attn");
        x = op::add(g, x, y);
        y = norm("ln2", x);
        g.watch(y, "ln2", false);
        y = mlp(y, residual);
        g.watch(y, "mlp");
        x = op::add(g, x, y);
        g.watch(x, "residual", false); // a sum hands its gradient on to what is added, which is watched
        return x;
    }
};

} // namespace

Network gpt_network(Graph& g, const ModelOptions& options, const Dataset& data, std::int64_t batch) {
    if (data.vocabulary == 0 || data.input.size() != 1)
        throw std::invalid_argument("[gpt] expected sequences of tokens, got " + data.name);
    if (options.heads < 1 || options.width % options.heads != 0)
        throw std::invalid_argument("[gpt] expected a width that is a multiple of the number of heads");
    Network n = batch_of(g, data, batch);
    const Gpt gpt{g, options, batch, data.input[0], n.kv_cache};
    const TensorId table = g.parameter("wte.weight", {data.vocabulary, options.width}, small);
    const TensorId positions = g.parameter("wpe.weight", {gpt.tokens, options.width}, small);
    TensorId x = op::dropout(g, op::add(g, op::embedding(g, table, n.inputs), positions), options.dropout);
    for (std::int64_t i = 0; i < options.depth; ++i) x = gpt.block(i, x);
    x = gpt.norm("ln_f", x);
    g.watch(x, "ln_f", false);
    add_loss(g, n, gpt.linear_layer("head", x, data.classes), data);
    g.watch(n.outputs, "head");
    return n;
}

} // namespace amp

#include <ampscope/sim/program/models/decoder.h>

namespace amp {

namespace {

TensorId gpt_attention(const Decoder& d, TensorId x) {
    const std::int64_t width = d.options.width, heads = d.options.heads;
    // A bias of the keys adds the same number to all scores of a query, which softmax cancels: the layer of all three
    // has one.
    const auto [q, k, v] = d.projections("qkv", x, {{"q", width, true}, {"k", width}, {"v", width, true}});
    const TensorId queries = d.heads_of(q, heads), keys = d.cached(d.heads_of(k, heads)),
                   values = d.cached(d.heads_of(v, heads));
    const TensorId out = d.linear_layer("o", d.mixed(queries, keys, values), width, d.residual(), true);
    return op::dropout(d.g, out, d.options.dropout);
}

TensorId gpt_mlp(const Decoder& d, TensorId x) {
    const std::int64_t width = d.options.width;
    const TensorId hidden =
        op::activation(d.g, d.options.activation, d.linear_layer("up", x, 4 * width, Decoder::small, true));
    d.g.watch(hidden, "hidden", false);
    return op::dropout(d.g, d.linear_layer("down", hidden, width, d.residual(), true), d.options.dropout);
}

} // namespace

Network gpt_network(Graph& g, const ModelOptions& options, const Dataset& data, std::int64_t batch) {
    check_decoder("gpt", options, data);
    Network n = batch_of(g, data, batch);
    const Decoder d{g, options, batch, data.input[0], n.kv_cache};
    const TensorId table = g.parameter("wte.weight", {data.vocabulary, options.width}, Decoder::small);
    const TensorId positions = g.parameter("wpe.weight", {d.tokens, options.width}, Decoder::small);
    TensorId x = op::dropout(g, op::add(g, op::embedding(g, table, n.inputs), positions), options.dropout);
    for (std::int64_t i = 0; i < options.depth; ++i)
        x = d.block(
            i, x, [&](TensorId y) { return gpt_attention(d, y); }, [&](TensorId y) { return gpt_mlp(d, y); });
    x = d.norm("ln_f", x);
    g.watch(x, "ln_f", false);
    add_loss(g, n, d.head(x, table, data.classes, true), options, data);
    g.watch(n.outputs, "head");
    return n;
}

} // namespace amp

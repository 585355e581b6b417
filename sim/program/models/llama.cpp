#include <ampscope/sim/program/models/decoder.h>

#include <fmt/format.h>

namespace amp {

namespace {

TensorId llama_attention(const Decoder& d, TensorId x) {
    const std::int64_t width = d.options.width, heads = d.options.heads, groups = d.options.groups();
    const std::int64_t shared = width / heads * groups;
    const auto [q, k, v] = d.projections("qkv", x, {{"q", width}, {"k", shared}, {"v", shared}});
    const auto turned = [&](TensorId y, std::int64_t n) {
        return op::rope(d.g, d.heads_of(y, n), d.options.rope_theta);
    };
    const TensorId queries = turned(q, heads), keys = d.cached(turned(k, groups)),
                   values = d.cached(d.heads_of(v, groups));
    const TensorId out = d.linear_layer("o", d.mixed(queries, keys, values), width, d.residual(), false);
    return op::dropout(d.g, out, d.options.dropout);
}

/// SwiGLU (N. Shazeer, "GLU Variants Improve Transformer", 2020), with any activation in the place of SiLU.
TensorId llama_mlp(const Decoder& d, TensorId x) {
    const std::int64_t units = d.options.hidden_units();
    const auto [gate, up, none] = d.projections("gate_up", x, {{"gate", units}, {"up", units}});
    const TensorId hidden = op::mul(d.g, op::activation(d.g, d.options.activation, gate), up);
    d.g.watch(hidden, "hidden", false);
    return op::dropout(d.g, d.linear_layer("down", hidden, d.options.width, d.residual(), false), d.options.dropout);
}

} // namespace

Network llama_network(Graph& g, const ModelOptions& options, const Dataset& data, std::int64_t batch) {
    check_decoder("llama", options, data);
    if (options.heads % options.groups() != 0)
        throw std::invalid_argument(fmt::format("[llama] kv_heads: expected a divisor of the {} heads, got {}",
                                                options.heads, options.groups()));
    if (options.width / options.heads % 2 != 0)
        throw std::invalid_argument(
            fmt::format("[llama] width: expected {1} heads of an even width, whose pairs rotary "
                        "positions turn, got {0} / {1} = {2}",
                        options.width, options.heads, options.width / options.heads));
    Network n = batch_of(g, data, batch);
    const Decoder d{g, options, batch, data.input[0], n.kv_cache};
    const TensorId table = g.parameter("wte.weight", {data.vocabulary, options.width}, Decoder::small);
    TensorId x = op::dropout(g, op::embedding(g, table, n.inputs), options.dropout);
    for (std::int64_t i = 0; i < options.depth; ++i)
        x = d.block(
            i, x, [&](TensorId y) { return llama_attention(d, y); }, [&](TensorId y) { return llama_mlp(d, y); });
    x = d.norm("ln_f", x);
    g.watch(x, "ln_f", false);
    add_loss(g, n, d.head(x, table, data.classes, false), options, data);
    g.watch(n.outputs, "head");
    return n;
}

} // namespace amp

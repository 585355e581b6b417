#include <ampscope/sim/program/models/decoder.h>

#include <fmt/format.h>

namespace amp {

TensorId Decoder::linear_layer(std::string_view name, TensorId x, std::int64_t outputs, const Init& init,
                               bool biased) const {
    const Graph::Scope scope = g.scope(name);
    const TensorId weight = g.parameter("weight", {outputs, g[x].shape.back()}, init);
    return op::linear(g, x, weight, biased ? g.parameter("bias", {outputs}, {}) : TensorId{});
}

std::array<TensorId, 3> Decoder::projections(std::string_view name, TensorId x,
                                             std::initializer_list<Projection> of) const {
    std::array<TensorId, 3> results{};
    std::array<std::int64_t, 3> outputs{};
    bool biased = false;
    for (std::size_t i = 0; const Projection& p : of) {
        if (!options.fused_projections) results[i] = linear_layer(p.name, x, p.outputs, small, p.biased);
        outputs[i++] = p.outputs;
        biased = biased || p.biased;
    }
    if (!options.fused_projections) return results;
    const std::int64_t all = outputs[0] + outputs[1] + outputs[2];
    return op::split(g, linear_layer(name, x, all, small, biased), g[x].shape.size() - 1, outputs);
}

TensorId Decoder::norm(std::string_view name, TensorId x) const {
    const Graph::Scope scope = g.scope(name);
    const Shape width = {options.width};
    const TensorId weight = g.parameter("weight", width, {Init::Kind::constant, 1});
    const bool rms = options.norm == op::NormKind::rms;
    const double eps = options.norm_eps > 0 ? options.norm_eps : rms ? 1e-6 : 1e-5;
    return rms ? op::rms_norm(g, x, weight, eps) : op::layer_norm(g, x, weight, g.parameter("bias", width, {}), eps);
}

TensorId Decoder::head(TensorId x, TensorId table, std::int64_t classes, bool biased) const {
    if (!options.tied) return linear_layer("head", x, classes, small, biased);
    const Graph::Scope scope = g.scope("head");
    return op::linear(g, x, table, {});
}

TensorId Decoder::heads_of(TensorId x, std::int64_t heads) const {
    return op::transpose(g, op::view(g, x, {batch, tokens, heads, g[x].shape.back() / heads}), {0, 2, 1, 3});
}

TensorId Decoder::cached(TensorId x) const {
    kv_cache.push_back(x);
    return g.through(g.precision().serving.kv_cache, x);
}

TensorId Decoder::plain_attention(TensorId q, TensorId k, TensorId v, double factor) const {
    const std::int64_t heads = g[q].shape[1], groups = g[k].shape[1], group = heads / groups;
    const auto together = [&](TensorId x) { // the rows of a group's heads, one after the other
        return group == 1 ? x : op::view(g, x, {batch, groups, group * tokens, g[x].shape.back()});
    };
    const auto apart = [&](TensorId x) {
        return group == 1 ? x : op::view(g, x, {batch, heads, tokens, g[x].shape.back()});
    };
    const TensorId products = op::matmul(g, together(op::scale(g, q, factor)), k, true);
    const TensorId scores = together(op::softmax(g, apart(products), true));
    return apart(op::matmul(g, scores, v));
}

TensorId Decoder::mixed(TensorId q, TensorId k, TensorId v) const {
    const std::int64_t heads = g[q].shape[1], size = g[q].shape[3];
    const double factor = 1 / std::sqrt(static_cast<double>(size));
    const std::optional<op::AttentionOptions> fused = op::attention_options(options.attention);
    const TensorId sums =
        fused ? op::fused_attention(g, q, k, v, factor, true, *fused) : plain_attention(q, k, v, factor);
    const TensorId joined = op::view(g, op::transpose(g, sums, {0, 2, 1, 3}), {batch, tokens, heads * size});
    g.watch(joined, "context", false);
    return joined;
}

void check_decoder(std::string_view model, const ModelOptions& options, const Dataset& data) {
    if (data.vocabulary == 0 || data.input.size() != 1)
        throw std::invalid_argument(fmt::format("[{}] expected sequences of tokens, got {}", model, data.name));
    if (options.heads < 1 || options.width % options.heads != 0)
        throw std::invalid_argument(
            fmt::format("[{}] heads: expected a divisor of the width {}, got {}", model, options.width, options.heads));
}

} // namespace amp

#include <ampscope/sim/eager/eager_attention.h>

#include <ampscope/formats/environment.h>
#include <ampscope/sim/backend/cpu/cpu.h>
#include <ampscope/sim/program/graph.h>

#include <algorithm>
#include <fmt/format.h>
#include <stdexcept>

namespace amp {

namespace {

op::AttentionOptions fused_options(const std::string& text) {
    if (const std::optional<op::AttentionOptions> options = op::attention_options(text)) return *options;
    throw std::invalid_argument("attention 'plain' has no tiles: it is two products and a softmax");
}

void check_call(const EagerAttention& how, const Shape& queries, const Shape& keys) {
    for (const Shape* const shape : {&queries, &keys})
        if (std::ranges::any_of(*shape, [](std::int64_t extent) { return extent < 1; }))
            throw std::invalid_argument("attention: expected extents of at least 1");
    if (!(how.scale >= 1e-30 && how.scale <= 1e30))
        throw std::invalid_argument(
            fmt::format("attention: scale {}: expected a number from 1e-30 to 1e30", how.scale));
    for (const FormatSpec& f : {how.q, how.k, how.v, how.out})
        if (f.is_integer() || f.is_scale())
            throw std::invalid_argument(fmt::format("attention: {}: expected a floating-point format", f.name));
}

/// A precision falls back on FP32 chains for products that its accumulators do not take; who names one means it.
void check_product(const EagerAttention& how, std::string_view product, const FormatSpec& a, const FormatSpec& b) {
    const auto takes = [&](const Accumulator& acc) { return acc.takes(a) && acc.takes(b); };
    if (!how.accumulators.empty() && std::ranges::none_of(how.accumulators, takes))
        throw std::invalid_argument(fmt::format("attention: accumulator '{}' does not multiply {}, {} times {}",
                                                names_of(how.accumulators), product, a.name, b.name));
}

} // namespace

void eager_attention(const EagerAttention& how, const Shape& queries, const Shape& keys, std::span<const float> q,
                     std::span<const float> k, std::span<const float> v, std::span<float> out, std::span<float> lse,
                     int threads) {
    const op::AttentionOptions options = fused_options(how.options);
    check_call(how, queries, keys);
    Precision p = precision("fp32");
    p.accumulators = how.accumulators;
    p.activations = how.out;
    Program program;
    Graph g(program, p);
    const TensorId given[] = {g.given("q", queries, how.q, false, false), g.given("k", keys, how.k, false, false),
                              g.given("v", keys, how.v, false, false)};
    const TensorId result = op::fused_attention(g, given[0], given[1], given[2], how.scale, how.causal, options);
    const auto& fused = std::get<op::FusedAttention>(program.forward.back().op);
    check_product(how, "q and k", how.q, how.k);
    check_product(how, "P and v", fused.p, how.v);

    const FloatEnvironment environment;
    Cpu cpu(program, threads);
    std::size_t i = 0;
    for (const std::span<const float> values : {q, k, v}) std::ranges::copy(values, cpu[given[i++]].begin());
    replay(cpu, program.forward);
    std::ranges::copy(cpu.read(result), out.begin());
    std::ranges::copy(cpu.read(fused.lse), lse.begin());
}

} // namespace amp

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
    if (std::ranges::any_of(how.mask_shape, [](std::int64_t extent) { return extent < 1; }))
        throw std::invalid_argument("attention: expected a mask with extents of at least 1");
    for (const FormatSpec& f : {how.q, how.k, how.v, how.out, how.gradient})
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

/// A program of one call.
struct AttentionCall {
    Program program;
    TensorId q, k, v, mask, out, grad, grad_q, grad_k, grad_v;
    std::span<const float> of_mask;

    AttentionCall(const EagerAttention& how, const Shape& queries, const Shape& keys, bool backward)
        : of_mask(how.mask) {
        const op::AttentionOptions options = fused_options(how.options);
        check_call(how, queries, keys);
        Precision p = precision("fp32");
        p.accumulators = p.backward_accumulators = how.accumulators;
        p.activations = how.out;
        p.gradients = how.gradient;
        Graph g(program, p);
        q = g.given("q", queries, how.q, false, backward);
        k = g.given("k", keys, how.k, false, backward);
        v = g.given("v", keys, how.v, false, backward);
        if (!how.mask_shape.empty()) mask = g.given("mask", how.mask_shape, fp32_format(), false, false);
        out = op::fused_attention(g, q, k, v, how.scale, how.causal, options, mask);
        check_product(how, "q and k", how.q, how.k);
        check_product(how, "P and v", fused().p, how.v);
        if (!backward) return;
        check_product(how, "the gradient and v", how.gradient, how.v);
        check_product(how, "P and the gradient", fused().ds, how.gradient);
        check_product(how, "dS and q", fused().ds, how.q);
        check_product(how, "dS and k", fused().ds, how.k);
        grad = g.differentiate_from(out);
        grad_q = g.gradient(q), grad_k = g.gradient(k), grad_v = g.gradient(v);
    }
    void set_operands(Cpu& cpu, std::span<const float> of_q, std::span<const float> of_k,
                      std::span<const float> of_v) const {
        std::ranges::copy(of_q, cpu[q].begin());
        std::ranges::copy(of_k, cpu[k].begin());
        std::ranges::copy(of_v, cpu[v].begin());
        if (mask) std::ranges::copy(of_mask, cpu[mask].begin());
    }
    [[nodiscard]] const op::FusedAttention& fused() const {
        return std::get<op::FusedAttention>(program.forward.back().op);
    }
};

} // namespace

void eager_attention(const EagerAttention& how, const Shape& queries, const Shape& keys, std::span<const float> q,
                     std::span<const float> k, std::span<const float> v, std::span<float> out, std::span<float> lse,
                     int threads) {
    const AttentionCall call(how, queries, keys, false);
    const FloatEnvironment environment;
    Cpu cpu(call.program, threads);
    call.set_operands(cpu, q, k, v);
    replay(cpu, call.program.forward);
    std::ranges::copy(cpu.read(call.out), out.begin());
    std::ranges::copy(cpu.read(call.fused().lse), lse.begin());
}

void eager_attention_gradients(const EagerAttention& how, const Shape& queries, const Shape& keys,
                               std::span<const float> q, std::span<const float> k, std::span<const float> v,
                               std::span<const float> grad, const AttentionGradients& to, int threads) {
    const AttentionCall call(how, queries, keys, true);
    const FloatEnvironment environment;
    Cpu cpu(call.program, threads);
    call.set_operands(cpu, q, k, v);
    std::ranges::copy(grad, cpu[call.grad].begin());
    replay(cpu, call.program.forward);
    replay(cpu, call.program.backward);
    std::ranges::copy(cpu.read(call.grad_q), to.q.begin());
    std::ranges::copy(cpu.read(call.grad_k), to.k.begin());
    std::ranges::copy(cpu.read(call.grad_v), to.v.begin());
}

} // namespace amp

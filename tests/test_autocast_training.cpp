// How autocast changes a program: casts and their cache, regions switched off, backward inside the region. The figures
// were checked with PyTorch 2.15.0 on the processor (torch.autocast("cpu", torch.bfloat16)).
#include <ampscope/sim/backend/cpu/cpu.h>
#include <ampscope/sim/program/graph.h>

#include <doctest/doctest.h>

#include <functional>

using namespace amp;

namespace {

/// The weight's gradient in a program with one weight and two inputs, all single numbers.
float weight_gradient(const Precision& p, std::array<float, 3> numbers,
                      const std::function<TensorId(Graph&, std::array<TensorId, 3>)>& loss) {
    Program program;
    Graph g(program, p);
    const TensorId w = g.parameter("w", {1, 1}, {}), x = g.input("x", {1, 1}), y = g.input("y", {1, 1});
    g.differentiate(loss(g, {w, x, y}));
    Cpu cpu(program, 1);
    cpu[w][0] = numbers[0];
    cpu[x][0] = numbers[1];
    cpu[y][0] = numbers[2];
    replay(cpu, program.forward);
    replay(cpu, program.backward);
    return cpu[g.gradient(w)][0];
}

TensorId used_twice(Graph& g, std::array<TensorId, 3> t) {
    return op::sum(g, op::add(g, op::linear(g, t[1], t[0], {}), op::linear(g, t[2], t[0], {})));
}

std::size_t count_casts(const Precision& p) {
    Program program;
    Graph g(program, p);
    const TensorId w = g.parameter("w", {4, 4}, {}), x = g.input("x", {2, 4});
    g.differentiate(op::sum(g, op::linear(g, op::linear(g, x, w, {}), w, {})));
    std::size_t casts = 0;
    for (const Instruction& i : program.forward)
        if (const auto* cast = std::get_if<op::Cast>(&i.op)) casts += cast->in == w;
    return casts;
}

} // namespace

TEST_CASE("with the weight cache a weight is cast once, and its gradients add up in the low format") {
    Precision p = precision("amp-bf16");
    CHECK(count_casts(p) == 1);
    CHECK(weight_gradient(p, {1, 1, 0x1p-9F}, used_twice) == 1.0F); // 1 + 2^-9 rounds to 1 in BF16
    p.weight_cache = false;
    CHECK(count_casts(p) == 2);
    CHECK(weight_gradient(p, {1, 1, 0x1p-9F}, used_twice) == 1.0F + 0x1p-9F);
}

TEST_CASE("a region switched off computes in FP32, and what enters is cast up") {
    Precision p = precision("amp-fp16");
    p.add_layer("safe", "autocast=off");
    Program program;
    Graph g(program, p);
    const TensorId w = g.parameter("w", {4, 4}, {}), x = g.input("x", {2, 4});
    const TensorId low = op::linear(g, x, w, {});
    CHECK(g[low].format == format("fp16"));
    {
        const Graph::Scope scope = g.scope("safe");
        CHECK(g[op::linear(g, low, w, {})].format == format("fp32"));
        const Graph::Scope inner = g.scope("inner");
        CHECK(g[op::linear(g, low, w, {})].format == format("fp32"));
    }
    const Graph::Scope scope = g.scope("safer"); // the name of another module, not of a part of "safe"
    CHECK(g[op::linear(g, low, w, {})].format == format("fp16"));
}

TEST_CASE("backward runs in the formats of forward, unless it is inside the region too") {
    // A product that forward computes in FP32, outside autocast: x = 1 + 2^-12 is its gradient. In BF16 it would be 1.
    const auto product = [](Graph& g, std::array<TensorId, 3> t) {
        const Graph::Scope scope = g.scope("outside");
        return op::sum(g, op::linear(g, t[1], t[0], {}));
    };
    Precision p = precision("amp-bf16");
    p.add_layer("outside", "autocast=off");
    CHECK(weight_gradient(p, {1, 1 + 0x1p-12F, 0}, product) == 1 + 0x1p-12F);
    p.backward_under_autocast = true;
    CHECK(weight_gradient(p, {1, 1 + 0x1p-12F, 0}, product) == 1.0F);
}

TEST_CASE("gradients have the formats of their tensors") {
    Program program;
    Graph g(program, precision("amp-fp16"));
    const TensorId w = g.parameter("w", {4, 4}, {}), x = g.input("x", {2, 4});
    const TensorId y = op::linear(g, x, w, {}), z = op::softmax(g, y);
    g.differentiate(op::sum(g, z));
    CHECK(g[z].format == format("fp32")); // by the CUDA policy
    CHECK(g[g.gradient(z)].format == format("fp32"));
    CHECK(g[g.gradient(y)].format == format("fp16"));
    CHECK(g[g.gradient(w)].format == format("fp32"));
}

TEST_CASE("norms of BF16 with FP32 weights give BF16 on the processor and FP32 on a device") {
    for (const AutocastPolicy policy : {AutocastPolicy::cpu, AutocastPolicy::cuda}) {
        Precision p = precision("amp-bf16");
        p.autocast.policy = policy;
        Program program;
        Graph g(program, p);
        const TensorId w = g.parameter("w", {4, 4}, {}), a = g.parameter("a", {4}, {}), b = g.parameter("b", {4}, {});
        const TensorId x = op::linear(g, g.input("x", {2, 4}), w, {});
        const FormatSpec want = format(policy == AutocastPolicy::cpu ? "bf16" : "fp32");
        CHECK(g[x].format == format("bf16"));
        const TensorId rms = op::rms_norm(g, x, a), layer = op::layer_norm(g, x, a, b),
                       group = op::group_norm(g, x, a, b, 2), alone = op::group_norm(g, x, a, {}, 2);
        for (const TensorId out : {rms, layer, group, alone}) CHECK(g[out].format == want);
        g.differentiate(op::sum(g, op::add(g, op::add(g, rms, layer), op::add(g, group, alone))));
        CHECK(g[g.gradient(a)].format == format("fp32"));
        CHECK(g[g.gradient(x)].format == format("bf16"));
    }
}

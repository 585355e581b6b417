// Ops called one by one have the bits that they have in a network: each is compared with the same layer in a program
// that the trainer's parts build and run.
#include <ampscope/formats/batch.h>
#include <ampscope/sim/backend/cpu/cpu.h>
#include <ampscope/sim/eager/eager_attention.h>
#include <ampscope/sim/eager/eager_op.h>
#include <ampscope/sim/eager/schedule.h>
#include <ampscope/sim/program/memory_plan.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>

using namespace amp;

namespace {

constexpr std::int64_t rows = 48, inputs = 64, outputs = 32;

std::vector<float> numbers(std::size_t count, float scale, unsigned seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0, scale);
    std::vector<float> values(count);
    for (float& x : values) x = normal(random);
    return values;
}

/// A tensor as a framework holds it.
struct Held {
    FormatSpec format;
    std::vector<float> floats;
    std::vector<std::uint16_t> halves;

    explicit Held(const FormatSpec& f, std::span<const float> values)
        : format(f), floats(values.begin(), values.end()), halves(values.size()) {
        if (f != fp32_format()) encode(f, values, halves);
    }
    void* data() { return format == fp32_format() ? static_cast<void*>(floats.data()) : halves.data(); }
    [[nodiscard]] std::vector<float> values() const {
        if (format == fp32_format()) return floats;
        std::vector<float> all(halves.size());
        decode(format, halves, all);
        return all;
    }
};

bool same_bits(std::span<const float> a, std::span<const float> b) {
    return std::ranges::equal(
        a, b, [](float x, float y) { return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y); });
}

/// A network of one layer and a loss.
struct Network {
    Program program;
    TensorId x, weight, bias, out, out_gradient, weight_gradient, bias_gradient;
    std::vector<DelayedScale> delayed;

    explicit Network(const Precision& precision) {
        Graph g(program, precision);
        x = g.input("x", {rows, inputs});
        const TensorId target = g.input("target", {rows, outputs});
        const Graph::Scope scope = g.scope("up");
        weight = g.parameter("weight", {outputs, inputs}, {});
        bias = g.parameter("bias", {outputs}, {});
        out = op::linear(g, x, weight, bias);
        g.differentiate(op::mse_loss(g, out, target));
        out_gradient = g.gradient(out);
        weight_gradient = g.gradient(weight);
        bias_gradient = g.gradient(bias);
        delayed = g.delayed_scales();
    }
};

/// What the layer reads an operand as: its only cast that has no scale, or itself.
TensorId read_as(const Program& program, TensorId of) {
    for (const Instruction& i : program.forward)
        if (const auto* const cast = std::get_if<op::Cast>(&i.op); cast != nullptr && cast->in == of) return cast->out;
    return of;
}

/// Whether an eager call of the layer has the bits of the network, over steps of it.
void compare(const std::string& text, int threads) {
    CAPTURE(text);
    const Precision precision = amp::precision(text);
    const Network network(precision);
    const Program& p = network.program;
    Cpu cpu(p, threads);
    for (const DelayedScale& d : network.delayed) std::ranges::fill(cpu[d.scale], 1.0F);
    std::ranges::copy(numbers(rows * inputs, 1, 1), cpu[network.x].begin());
    std::ranges::copy(numbers(outputs * inputs, 0.1F, 2), cpu[network.weight].begin());
    std::ranges::copy(numbers(outputs, 0.1F, 3), cpu[network.bias].begin());

    const TensorId x = read_as(p, network.x), weight = read_as(p, network.weight), bias = read_as(p, network.bias);
    const auto operand = [&](TensorId id, bool is_weight) {
        return EagerOperand{.shape = p[id].shape, .format = p[id].format, .weight = is_weight, .needs_gradient = true};
    };
    const EagerOp layer("linear", precision, "up",
                        std::vector{operand(x, false), operand(weight, true), operand(bias, true)},
                        p[network.out].format);
    EagerState state;
    for (std::uint32_t step = 0; step < 4; ++step) {
        cpu.context.step = step;
        cpu.context.loss_scale = std::ldexp(1.0, static_cast<int>(3 * step)); // scales of gradients have to move
        replay(cpu, p.forward);
        replay(cpu, p.backward);

        Held held_x(p[x].format, cpu.read(x)), held_weight(p[weight].format, cpu.read(weight)),
            held_bias(p[bias].format, cpu.read(bias)), gradient(p[network.out].format, cpu.read(network.out_gradient));
        Held out(p[network.out].format, std::vector<float>(rows * outputs)),
            to_weight(p[weight].format, std::vector<float>(outputs * inputs)),
            to_bias(p[bias].format, std::vector<float>(outputs)), to_x(p[x].format, std::vector<float>(rows * inputs));
        const EagerContext context{.step = step, .threads = threads, .state = &state};
        layer.forward(std::vector<const void*>{held_x.data(), held_weight.data(), held_bias.data()}, out.data(),
                      context);
        layer.backward(std::vector<const void*>{held_x.data(), held_weight.data(), held_bias.data()}, gradient.data(),
                       std::vector<void*>{to_x.data(), to_weight.data(), to_bias.data()}, context);
        CHECK(same_bits(out.values(), cpu.read(network.out)));
        CHECK(same_bits(to_weight.values(), cpu.read(network.weight_gradient)));
        CHECK(std::ranges::any_of(to_x.values(), [](float g) { return g != 0; })); // the network's x has no gradient
        CHECK(same_bits(to_bias.values(), cpu.read(network.bias_gradient)));

        for (const DelayedScale& d : network.delayed)
            cpu.run(op::UpdateScale{d.history, d.scale, d.rule, precision.scaling->most_recent});
        state.advance();
        for (std::size_t i = 0; i < network.delayed.size(); ++i)
            CHECK(state.scales.at(i).scale[0] == cpu.read(network.delayed[i].scale)[0]);
        for (float& w : cpu[network.weight]) w *= 1.5F; // amax of weights grows
    }
}

} // namespace

TEST_CASE("an eager linear layer has the bits of the network's") {
    for (const std::string text :
         {"fp32", "tf32", "tf32-truncate", "amp-fp16", "amp-bf16", "master-fp16", "fp8-delayed", "fp8-current",
          "fp8-block", "mxfp8", "deepseek", "ms-amp", "amp-bf16,scaling=torchao-rowwise-gw-hp",
          "fp32,scaling=te-current", "fp8-delayed,scaling-history=2,scaling-amax=most-recent",
          "fp8-current,accumulate=hopper-wgmma-fp8", "amp-fp16,accumulate-backward=volta-fp16", "fp32,accumulate=kahan",
          "amp-bf16,accumulate-forward=pairwise,accumulate-backward=exact"})
        for (const int threads : {1, 3}) compare(text, threads);
}

TEST_CASE("a wide layer has the bits of its definition, however many threads divide its columns") {
    constexpr std::size_t m = 3, k = 500, n = 900;
    const std::vector<float> x_values = numbers(m * k, 1, 1), weight_values = numbers(n * k, 0.3F, 2),
                             bias_values = numbers(n, 1, 3);
    for (const FormatSpec f : {fp32_format(), format("bf16"), format("fp16")}) {
        Held x(f, x_values), weight(f, weight_values), bias(f, bias_values);
        const EagerOp layer("linear", Precision(), "", std::vector<EagerOperand>{{{m, k}, f}, {{n, k}, f}, {{n}, f}},
                            f);
        const std::vector<float> a = x.values(), b = weight.values(), c = bias.values();
        std::vector<float> sums;
        for (std::size_t i = 0; i < m; ++i)
            for (std::size_t j = 0; j < n; ++j) {
                float sum = 0;
                for (std::size_t l = 0; l < k; ++l) sum = std::fma(a[i * k + l], b[j * k + l], sum);
                sums.push_back(sum + c[j]);
            }
        const Held wanted(f, sums);
        for (const int threads : {1, 2, 7}) {
            Held out(f, std::vector<float>(m * n));
            layer.forward(std::vector<const void*>{x.data(), weight.data(), bias.data()}, out.data(),
                          {.threads = threads});
            CHECK(same_bits(out.values(), wanted.values()));
        }
    }
}

TEST_CASE("casts with scales are counted once, by operand, if that is asked for") {
    for (const std::string text : {"fp8-current", "mxfp8", "fp8-delayed"}) {
        CAPTURE(text);
        const EagerOp layer(
            "linear", precision(text), "up",
            std::vector<EagerOperand>{{.shape = {rows, inputs}, .format = format("bf16"), .needs_gradient = true},
                                      {.shape = {outputs, inputs}, .weight = true, .needs_gradient = true},
                                      {.absent = true}},
            format("bf16"));
        Held x(format("bf16"), numbers(rows * inputs, 1000, 1)), weight(fp32_format(), numbers(outputs * inputs, 1, 2)),
            gradient(format("bf16"), numbers(rows * outputs, 1, 3)),
            out(format("bf16"), std::vector<float>(rows * outputs)),
            to_x(format("bf16"), std::vector<float>(rows * inputs)),
            to_weight(fp32_format(), std::vector<float>(outputs * inputs));
        x.halves[0] = 0;
        EagerState state;
        EagerCasts casts;
        const auto run = [&](EagerCasts* counted) {
            const EagerContext context{.state = &state, .casts = counted};
            layer.forward(std::vector<const void*>{x.data(), weight.data(), nullptr}, out.data(), context);
            layer.backward(std::vector<const void*>{x.data(), weight.data(), nullptr}, gradient.data(),
                           std::vector<void*>{to_x.data(), to_weight.data(), nullptr}, context);
        };
        run(nullptr);
        CHECK(casts.counts[0].elements == 0);
        run(&casts);
        const auto& [of_x, of_weight, of_gradient] = casts.counts;
        const int each = text == "mxfp8" ? 2 : 1; // along both axes
        CHECK(of_x.elements == each * rows * inputs);
        CHECK(of_x.nonzero == each * (rows * inputs - 1));
        CHECK(of_weight.nonzero == each * outputs * inputs);
        CHECK(of_gradient.nonzero == each * rows * outputs);
        // Under the first scale of delayed scaling, 1, the format ends at 448, and what is from 464 on is beyond it.
        const std::vector<float> values = x.values();
        const auto beyond = std::ranges::count_if(values, [](float v) { return std::abs(v) > 464; });
        CHECK(of_x.saturated == (text == "fp8-delayed" ? beyond : 0));
        CHECK(of_weight.saturated == 0);
    }
}

TEST_CASE("stochastic casts of eager ops depend on layer, step and call, and on nothing else") {
    const Precision precision = amp::precision("nvfp4");
    const auto operands =
        std::vector<EagerOperand>{{.shape = {rows, inputs}, .format = format("bf16"), .needs_gradient = true},
                                  {.shape = {outputs, inputs}, .weight = true, .needs_gradient = true},
                                  {.absent = true}};
    Held x(format("bf16"), numbers(rows * inputs, 1, 1)), weight(fp32_format(), numbers(outputs * inputs, 0.1F, 2)),
        gradient(format("bf16"), numbers(rows * outputs, 1, 3));
    const auto run = [&](const std::string& name, std::uint32_t step, std::uint32_t call, int threads) {
        const EagerOp layer("linear", precision, name, operands, format("bf16"));
        Held to_x(format("bf16"), std::vector<float>(rows * inputs)),
            to_weight(fp32_format(), std::vector<float>(outputs * inputs));
        layer.backward(std::vector<const void*>{x.data(), weight.data(), nullptr}, gradient.data(),
                       std::vector<void*>{to_x.data(), to_weight.data(), nullptr},
                       {.step = step, .call = call, .threads = threads});
        return to_weight.values();
    };
    const std::vector<float> first = run("up", 0, 0, 1);
    CHECK(same_bits(first, run("up", 0, 0, 3)));
    CHECK_FALSE(same_bits(first, run("down", 0, 0, 1)));
    CHECK_FALSE(same_bits(first, run("up", 1, 0, 1)));
    CHECK_FALSE(same_bits(first, run("up", 0, 1, 1)));
}

TEST_CASE("the patches of a convolution and their gradients are not held at the same time") {
    const std::vector<EagerOperand> operands = {{.shape = {1, 6, 6, 4}, .needs_gradient = true},
                                                {.shape = {8, 36}, .weight = true, .needs_gradient = true},
                                                {.shape = {8}, .weight = true, .needs_gradient = true}};
    for (const char* const name : {"fp32", "fp8-current"}) {
        const EagerOp conv("conv2d", precision(name), "c", operands, fp32_format(),
                           std::vector<double>{3, 1, 1, 1, 3, 1, 1, 1, 1});
        const Program& program = conv.program();
        const std::vector<Lifetime> lives = lifetimes(program, {&program.backward});
        const Lifetime *patches = nullptr, *gradients = nullptr;
        for (const Instruction& i : program.backward) {
            if (const auto* const to = std::get_if<op::Im2Col>(&i.op))
                patches = &lives[static_cast<std::size_t>(to->out.index)];
            if (const auto* const from = std::get_if<op::Col2Im>(&i.op))
                gradients = &lives[static_cast<std::size_t>(from->in.index)];
        }
        REQUIRE(patches != nullptr);
        REQUIRE(gradients != nullptr);
        CAPTURE(name);
        CHECK((patches->end < gradients->begin || gradients->end < patches->begin));
    }
}

TEST_CASE("numbers that are held at the same time do not overlap in memory, and others share it") {
    std::mt19937 random(5);
    const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random()) % n; };
    for (int round = 0; round < 200; ++round) {
        std::vector<HeldNumbers> held(1 + below(12));
        std::size_t most = 0; // held at one time
        for (HeldNumbers& h : held) {
            h.count = below(5) == 0 ? 0 : below(100);
            h.lifetime.begin = below(8);
            h.lifetime.end = h.lifetime.begin + below(4);
        }
        const MemoryPlan plan = memory_plan(held);
        std::size_t all = 0;
        for (std::size_t at = 0; at < 12; ++at) {
            std::vector<int> used(plan.size);
            std::size_t together = 0;
            for (std::size_t i = 0; i < held.size(); ++i) {
                if (at < held[i].lifetime.begin || held[i].lifetime.end < at) continue;
                REQUIRE(plan.begins[i] % 16 == 0);
                REQUIRE(plan.begins[i] + held[i].count <= plan.size);
                for (std::size_t n = 0; n < held[i].count; ++n) ++used[plan.begins[i] + n];
                together += (held[i].count + 15) / 16 * 16;
            }
            REQUIRE(std::ranges::none_of(used, [](int n) { return n > 1; }));
            most = std::max(most, together);
        }
        for (const HeldNumbers& h : held) all += (h.count + 15) / 16 * 16;
        CHECK(plan.size >= most);
        CHECK(plan.size <= all);
    }
    const std::vector<HeldNumbers> chain = {{100, {0, 1}}, {50, {1, 2}}, {90, {2, 3}}, {50, {3, 4}}};
    CHECK(memory_plan(chain).size == 112 + 64);
}

TEST_CASE("fused attention by itself, forward and backward, is that of a program") {
    const Shape queries{2, 4, 6, 8}, keys{2, 2, 6, 8};
    const FormatSpec bf16 = format("bf16");
    const std::string text = "fused:4x3,o=bf16";
    const EagerOp eager(text, precision("amp-bf16"), "h.0.attn",
                        std::vector<EagerOperand>{{.shape = queries, .format = bf16, .needs_gradient = true},
                                                  {.shape = keys, .format = bf16, .needs_gradient = true},
                                                  {.shape = keys, .format = bf16, .needs_gradient = true},
                                                  {.absent = true}},
                        bf16, std::vector<double>{0.3, 1});
    std::vector<float> q = numbers(384, 1, 1), k = numbers(192, 1, 2), v = numbers(192, 1, 3),
                       grad = numbers(384, 1, 4);
    for (std::vector<float>* x : {&q, &k, &v, &grad}) quantize(bf16, *x, *x);
    Held a(bf16, q), b(bf16, k), c(bf16, v), d(bf16, grad), out(bf16, q), gq(bf16, q), gk(bf16, k), gv(bf16, v);
    eager.forward(std::vector<const void*>{a.data(), b.data(), c.data(), nullptr}, out.data(), {});
    eager.backward(std::vector<const void*>{a.data(), b.data(), c.data(), nullptr}, d.data(),
                   std::vector<void*>{gq.data(), gk.data(), gv.data(), nullptr}, {});
    std::vector<float> sums(48), want(384), want_q(384), want_k(192), want_v(192);
    const EagerAttention how{
        .options = text, .causal = true, .scale = 0.3, .q = bf16, .k = bf16, .v = bf16, .out = bf16, .gradient = bf16};
    eager_attention(how, queries, keys, q, k, v, want, sums, 1);
    eager_attention_gradients(how, queries, keys, q, k, v, grad, {want_q, want_k, want_v}, 1);
    CHECK(out.values() == want);
    CHECK(gq.values() == want_q);
    CHECK(gk.values() == want_k);
    CHECK(gv.values() == want_v);
    CHECK(want_k != want_v);
}

TEST_CASE("an eager op names what does not fit") {
    const Precision fp32;
    const std::vector<EagerOperand> two(2, {.shape = {2, 3}}), three(3, {.shape = {2, 3}});
    CHECK_THROWS_WITH_AS(EagerOp("conv9d", fp32, "", two, fp32_format()), doctest::Contains("conv9d"),
                         std::invalid_argument);
    CHECK_THROWS_WITH_AS(EagerOp("linear", fp32, "", two, fp32_format()),
                         "[linear] expected 3 operands and 0 settings, got 2 and 0", std::invalid_argument);
    CHECK_THROWS_WITH_AS(EagerOp("linear", fp32, "", three, fp32_format()), doctest::Contains("a bias of OUT"),
                         std::invalid_argument);
    const std::vector<EagerOperand> mixed = {
        {.shape = {2, 3}}, {.shape = {3, 2}, .format = format("bf16"), .needs_gradient = true}, {.absent = true}};
    CHECK_THROWS_WITH_AS(EagerOp("matmul", fp32, "", mixed, fp32_format()),
                         "[matmul] operand 1 is bf16, and its gradient would be fp32", std::invalid_argument);
}

// Scaled layers: torchao's Float8Linear, published traces of delayed scaling, and the formats of every product.
#include "sweep.h"

#include <ampscope/formats/scaled_dot.h>
#include <ampscope/sim/backend/cpu/cpu.h>
#include <ampscope/sim/backend/kernels/quantize.h>
#include <ampscope/sim/program/graph.h>
#include <ampscope/sim/train/trainer.h>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <cfloat>
#include <cmath>
#include <fstream>

using namespace amp;
using namespace amp::test;
using Json = nlohmann::json;

namespace {

constexpr std::int64_t tokens = 16, inputs = 48, outputs = 32;

/// The numbers that linear.py makes.
std::vector<float> numbers(std::int64_t count, std::uint32_t seed, std::uint32_t spread) {
    std::vector<float> values;
    for (std::int64_t i = 0; i < count; ++i) {
        seed = seed * 1664525 + 1013904223;
        values.push_back(
            static_cast<float>(std::ldexp(seed / 0x1p31 - 1, -static_cast<int>((seed >> 8) % (spread + 1)))));
    }
    return values;
}

/// A scaled layer by itself, in FP32 except for the recipe's casts; its output gradient is given.
struct Layer {
    Program program;
    TensorId x, weight, grad, out, loss, to_x, to_weight;
    std::vector<TensorId> delayed;

    explicit Layer(const std::string& precision_name) {
        Graph g(program, precision(precision_name));
        const Graph::Scope scope = g.scope("layer");
        x = g.parameter("x", {tokens, inputs}, {});
        weight = g.parameter("weight", {outputs, inputs}, {});
        grad = g.input("grad", {tokens, outputs});
        out = op::linear(g, x, weight, {});
        loss = op::sum(g, op::mul(g, out, grad)); // its gradient with respect to out is `grad`
        g.differentiate(loss);
        to_x = g.gradient(x);
        to_weight = g.gradient(weight);
        for (const DelayedScale& d : g.delayed_scales()) delayed.push_back(d.scale);
    }

    [[nodiscard]] Cpu run() const {
        Cpu cpu(program, 1);
        std::ranges::copy(numbers(tokens * inputs, 1, 6), cpu[x].begin());
        std::ranges::copy(numbers(outputs * inputs, 2, 4), cpu[weight].begin());
        std::ranges::copy(numbers(tokens * outputs, 3, 12), cpu[grad].begin());
        for (const TensorId scale : delayed) cpu[scale][0] = 1;
        replay(cpu, program.forward);
        replay(cpu, program.backward);
        return cpu;
    }
};

std::vector<float> words(const std::string& hex) {
    std::vector<float> values;
    for (std::size_t i = 0; i < hex.size(); i += 8)
        values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(std::stoul(hex.substr(i, 8), nullptr, 16))));
    return values;
}

/// |a - b| / |b| in Euclidean norms.
double distance(std::span<const float> a, const std::vector<float>& b) {
    REQUIRE(a.size() == b.size());
    double difference = 0, size = 0;
    for (std::size_t i = 0; i < b.size(); ++i) {
        difference += std::pow(static_cast<double>(a[i]) - b[i], 2);
        size += std::pow(static_cast<double>(b[i]), 2);
    }
    return std::sqrt(difference / size);
}

/// Compares every number of a product's result, before it is rounded to its format (FP32 here), with the definition.
void compare_with_scaled_dot(const Cpu& cpu, const op::Matmul& m, Tally& tally) {
    const BlockScaling &sa = m.a_scale.scaling, &sb = m.b_scale.scaling;
    const auto or_all = [&](std::int64_t extent) { return extent == 0 ? m.k : extent; };
    const std::int64_t block =
        std::min(or_all(m.transpose_a ? sa.rows : sa.columns), or_all(m.transpose_b ? sb.columns : sb.rows));
    const FormatSpec scale = sa.scale_format();
    /// Element l of line `line` of an operand whose k runs over rows, or columns; and its scale.
    const auto element = [&](TensorId id, const op::OperandScale& of, bool k_is_rows, std::int64_t lines,
                             std::int64_t line, std::int64_t l) {
        const std::int64_t columns = k_is_rows ? lines : m.k, rows = k_is_rows ? m.k : lines;
        const std::int64_t i = k_is_rows ? l : line, j = k_is_rows ? line : l;
        const std::int64_t height = of.scaling.rows == 0 ? rows : of.scaling.rows,
                           width = of.scaling.columns == 0 ? columns : of.scaling.columns;
        return std::pair(
            cpu[id][static_cast<std::size_t>(i * columns + j)],
            cpu[of.scale][static_cast<std::size_t>(i / height * ((columns + width - 1) / width) + j / width)]);
    };
    for (std::int64_t i = 0; i < m.m; ++i)
        for (std::int64_t j = 0; j < m.n; ++j) {
            std::vector<float> a, b, a_scales, b_scales;
            for (std::int64_t l = 0; l < m.k; ++l) {
                const auto [x, x_scale] = element(m.a, m.a_scale, m.transpose_a, m.m, i, l);
                const auto [y, y_scale] = element(m.b, m.b_scale, !m.transpose_b, m.n, j, l);
                a.push_back(x);
                b.push_back(y);
                if (l % block == 0) a_scales.push_back(x_scale), b_scales.push_back(y_scale);
            }
            float want = scaled_dot(m.arithmetic.accumulate, cpu.info(m.a).format, cpu.info(m.b).format, {a, a_scales},
                                    {b, b_scales}, static_cast<std::size_t>(block), scale);
            if (m.a_scale.upper && sa.rule == ScaleRule::nvfp4)
                // as TE's compute_nvfp4_per_tensor_scale_kernel: alpha = amax_A * amax_B * factor_inv
                want *= cpu[m.a_scale.upper][0] * cpu[m.b_scale.upper][0] * (1.0F / (6.0F * 6 * 448 * 448));
            else if (m.a_scale.upper) want *= cpu[m.a_scale.upper][0] * cpu[m.b_scale.upper][0];
            tally.expect(cpu[m.out][static_cast<std::size_t>(i * m.n + j)], want,
                         [&] { return fmt::format("{} {} x {}", m.arithmetic.accumulate.name, i, j); });
        }
}

/// Delayed scaling of one tensor with a given largest magnitude in each step.
struct Delayed {
    Program program;
    TensorId x;
    DelayedScale state;
    op::Quantize cast;

    Delayed(int length, bool most_recent) {
        const auto add = [&](const char* name, Shape shape, const char* f) {
            program.tensors.push_back({.name = name, .shape = std::move(shape), .format = format(f)});
            return TensorId{static_cast<std::int32_t>(program.tensors.size() - 1)};
        };
        x = add("x", {1, 2}, "fp32");
        state = {add("scale", {}, "fp32"), add("history", {length}, "fp32"), {}};
        cast = {.in = x,
                .out = add("q", {1, 2}, "e4m3"),
                .scale = add("d", {1, 1}, "fp32"),
                .upper = {},
                .delayed = state.scale,
                .history = state.history};
        program.forward.push_back({cast, ""});
        program.check.push_back({op::UpdateScale{state.history, state.scale, {}, most_recent}, ""});
    }
};

} // namespace

TEST_CASE("torchao's Float8Linear: result and both gradients of every recipe") {
    const Json recorded = Json::parse(std::ifstream(AMPSCOPE_TEST_DATA "/torchao/linear.json"))["recipes"];
    for (const std::string name : {"tensorwise", "rowwise", "rowwise_with_gw_hp"}) {
        CAPTURE(name);
        const Layer layer("fp32,scaling=torchao-" + (name == "rowwise_with_gw_hp" ? "rowwise-gw-hp" : name));
        const Cpu cpu = layer.run();
        const Json& want = recorded[name];
        // torchao's emulation multiplies numbers that were scaled back, in FP32: its sums differ in the last bits. With
        // any other cast or scale they would differ by more.
        CHECK(distance(cpu[layer.out], words(want["out"])) < 3e-7);
        CHECK(distance(cpu[layer.to_x], words(want["grad_input"])) < 3e-7);
        CHECK(distance(cpu[layer.to_weight], words(want["grad_weight"])) < 3e-7);
    }
    // Other recipes differ by more.
    const Layer other("fp32,scaling=te-current");
    CHECK(distance(other.run()[other.out], words(recorded["rowwise"]["out"])) > 1e-3);
}

TEST_CASE("the published trace of delayed scaling") {
    struct Row {
        float amax, used, stored;
    };
    for (const bool most_recent : {false, true}) {
        const Delayed d(4, most_recent);
        Cpu cpu(d.program, 1);
        cpu[d.state.scale][0] = 1;
        const float recent[] = {1, 224, 112, 7, 448, 448, 448, 448}, largest[] = {1, 224, 112, 7, 7, 7, 7, 448};
        const float amax[] = {2, 4, 64, 1, 1, 1, 1, 1}, stored[] = {2, 2, 4, 1, 1, 1, 1, 1};
        for (int i = 0; i < 8; ++i) {
            CAPTURE(i);
            cpu[d.x][0] = -amax[i];
            CHECK(cpu[d.state.scale][0] == (most_recent ? recent[i] : largest[i]));
            replay(cpu, d.program.forward);
            CHECK(cpu[d.cast.out][0] * cpu[d.cast.scale][0] == -stored[i]); // spikes saturate for one step
            replay(cpu, d.program.check);
        }
        CHECK(cpu[d.state.scale][0] == 448);
    }
}

TEST_CASE("an infinite amax freezes the scale for as long as it is remembered") {
    const Delayed d(4, false);
    Cpu cpu(d.program, 1);
    cpu[d.state.scale][0] = 1;
    const float inf = std::numeric_limits<float>::infinity();
    const float amax[] = {2, inf, 1, 1, 1, 1}, after[] = {224, 224, 224, 224, 224, 448};
    for (int i = 0; i < 6; ++i) {
        cpu[d.x][0] = amax[i];
        cpu[d.x][1] = std::numeric_limits<float>::quiet_NaN(); // ignored
        replay(cpu, d.program.forward);
        CHECK(std::isnan(cpu[d.cast.out][1]));
        replay(cpu, d.program.check);
        CHECK(cpu[d.state.scale][0] == after[i]);
    }
    // A step in which the tensor is not cast, and the smallest amax.
    cpu[d.x][0] = cpu[d.x][1] = 0;
    const std::vector<float> before(cpu[d.state.history].begin(), cpu[d.state.history].end());
    replay(cpu, d.program.forward);
    replay(cpu, d.program.check);
    CHECK(std::ranges::equal(cpu[d.state.history], before));
    for (int i = 0; i < 4; ++i) {
        cpu[d.x][0] = 0x1p-149F;
        replay(cpu, d.program.forward);
        replay(cpu, d.program.check);
    }
    CHECK(cpu[d.state.scale][0] == FLT_MAX);
    cpu.context.training = false; // evaluation changes nothing
    cpu[d.x][0] = 5;
    replay(cpu, d.program.forward);
    CHECK(cpu[d.state.history][0] == 0);
}

TEST_CASE("every product reads the formats of its recipe, scaled along what it sums over") {
    for (const ScalingRecipe& recipe : scaling_recipes()) {
        CAPTURE(recipe.name);
        const Layer layer("fp32,scaling=" + std::string(recipe.name));
        std::vector<const op::Matmul*> products;
        for (const Tape* tape : {&layer.program.forward, &layer.program.backward})
            for (const Instruction& i : *tape)
                if (const auto* m = std::get_if<op::Matmul>(&i.op)) products.push_back(m);
        REQUIRE(products.size() == 3);
        const auto element = [&](TensorId id) { return layer.program[id].format; };
        CHECK(element(products[0]->a) == recipe.input.element);
        CHECK(element(products[0]->b) == recipe.weight.blocks(false).stored());
        for (const op::Matmul* m : products) {
            const bool is_weight_gradient = m->transpose_a;
            if (m != products[0] && recipe.reads_unscaled(is_weight_gradient)) {
                CHECK(!m->a_scale.scale);
                continue;
            }
            if (m != products[0]) CHECK(element(m->a) == recipe.gradient.element);
            const int along_a = static_cast<int>(m->transpose_a ? m->a_scale.scaling.rows : m->a_scale.scaling.columns);
            CHECK(along_a == (m == products[0] ? recipe.input.along : recipe.gradient.along));
            const BlockScaling& b = m->b_scale.scaling;
            const bool backward_weight = m == products[1] && !m->transpose_a && recipe.weight_in_backward;
            const int wanted = backward_weight      ? recipe.weight_in_backward->along
                               : is_weight_gradient ? recipe.input.along
                                                    : recipe.weight.along;
            CHECK((m->transpose_b ? b.columns : b.rows) == wanted);
        }
        // The result is close to the product of the original numbers, the closer the finer the elements are.
        const Layer exact("fp32");
        const Cpu cpu = layer.run(), reference = exact.run();
        const auto far = [&](TensorId ours, TensorId theirs) {
            const auto r = reference[theirs];
            return distance(cpu[ours], {r.begin(), r.end()});
        };
        const bool fp4 = recipe.input.element == format("e2m1"), int4 = recipe.weight.element == format("int4");
        const double bound = fp4 ? 0.25 : int4 ? 0.12 : 0.08;
        CHECK(far(layer.out, exact.out) < bound);
        CHECK(far(layer.to_x, exact.to_x) < bound);
        CHECK(far(layer.to_weight, exact.to_weight) < bound);
        CHECK(far(layer.out, exact.out) > 1e-3);
    }
}

TEST_CASE("the Hadamard transform of 16 rows, and that a product of two is as it was") {
    // Sylvester's construction, with the signs on the left.
    std::vector<std::vector<double>> h = {{1}};
    while (h.size() < 16) {
        const std::size_t n = h.size();
        std::vector<std::vector<double>> next(2 * n, std::vector<double>(2 * n));
        for (std::size_t i = 0; i < n; ++i)
            for (std::size_t j = 0; j < n; ++j) {
                next[i][j] = next[i][j + n] = next[i + n][j] = h[i][j];
                next[i + n][j + n] = -h[i][j];
            }
        h = next;
    }
    const double s[] = {1, 1, 1, -1, 1, -1, -1, -1, -1, -1, -1, 1, -1, 1, -1, -1};
    Program program;
    Graph g(program, precision("fp32"));
    constexpr std::int64_t rows = 40, columns = 3; // the last 8 rows do not fill a group
    const TensorId x = g.input("x", {rows, columns}), out = g.result("out", {rows, columns}, format("fp32"));
    g.append(op::Hadamard{x, out}, "");
    Cpu cpu(program, 1);
    const std::vector<float> in = numbers(rows * columns, 9, 8);
    std::ranges::copy(in, cpu[x].begin());
    replay(cpu, program.forward);
    double before = 0, after = 0;
    for (std::size_t row = 0; row < rows; ++row)
        for (std::size_t c = 0; c < columns; ++c) {
            double want = in[row * columns + c];
            if (row < 32) {
                want = 0;
                for (std::size_t i = 0; i < 16; ++i)
                    want += 0.25 * s[i] * h[i][row % 16] * in[(row / 16 * 16 + i) * columns + c];
            }
            CHECK(cpu[out][row * columns + c] == static_cast<float>(want));
            before += static_cast<double>(in[row * columns]) * in[row * columns + c];
            after += static_cast<double>(cpu[out][row * columns]) * cpu[out][row * columns + c];
        }
    CHECK(after == doctest::Approx(before).epsilon(1e-6));
}

TEST_CASE("the first cast of MS-AMP sets the scale itself") {
    Delayed d(16, false);
    std::get<op::Quantize>(d.program.forward[0].op).rule.ms_amp = true;
    Cpu cpu(d.program, 1);
    cpu[d.state.scale][0] = 1;
    cpu[d.x][0] = 3;
    replay(cpu, d.program.forward);
    CHECK(cpu[d.state.scale][0] == 128);
    CHECK(cpu[d.cast.out][0] == 384);
}

TEST_CASE("a scaled product is scaled_dot of its rows and columns") {
    Tally tally;
    for (const ScalingRecipe& recipe : scaling_recipes())
        for (const char* name : {"fp32", "exact", "hopper-wgmma-fp8", "blackwell-fp8", "blackwell-mxf4nvf4",
                                 "blackwell-mxf4nvf4-promote64-split2"}) {
            const Accumulator acc = accumulator(name);
            if (!acc.takes(recipe.input.element)) continue;
            const Layer layer(fmt::format("fp32,scaling={},accumulate={}", recipe.name, name));
            const Cpu cpu = layer.run();
            for (const Tape* tape : {&layer.program.forward, &layer.program.backward})
                for (const Instruction& i : *tape)
                    if (const auto* m = std::get_if<op::Matmul>(&i.op); m != nullptr && m->a_scale.scale)
                        compare_with_scaled_dot(cpu, *m, tally);
        }
    report("scaled products", tally);
}

TEST_CASE("what differs from a recipe's row") {
    const Precision p = precision("fp8-delayed,scaling-history=16,scaling-margin=2,scaling-amax=most-recent,"
                                  "scaling-forward=e5m2,scaling-backward=e4m3");
    CHECK(p.scaling->history == 16);
    CHECK(p.scaling->margin == 2);
    CHECK(p.scaling->most_recent);
    CHECK(p.scaling->input.element == format("e5m2"));
    CHECK(p.scaling->gradient.element == format("e4m3"));
    CHECK(precision("mxfp8,scaling-rule=mx-rceil").scaling->weight.rule == ScaleRule::mx_rceil);
    for (const char* wrong : {"fp32,scaling-margin=1", "fp8-current,scaling-margin=1", "fp8-delayed,scaling-margin=x",
                              "fp8-delayed,scaling-history=0", "fp8-delayed,scaling-amax=mean", "mxfp8,scaling-rule=mx",
                              "mxfp8,scaling-forward=e9m9", "mxfp8,scaling-size=3"})
        CHECK_THROWS_AS(precision(wrong), std::invalid_argument);
}

TEST_CASE("a cast and back gives the scaled numbers, rounded once to the wider format") {
    Program program;
    Graph g(program, precision("fp32"));
    const TensorId x = g.input("x", {8, 32});
    const TensorId out = g.through(OperandScaling{.across = 1}, x);
    CHECK(g.through(std::nullopt, x) == x);
    Cpu cpu(program, 1);
    const std::vector<float> in = numbers(8 * 32, 5, 12);
    std::ranges::copy(in, cpu[x].begin());
    replay(cpu, program.forward);
    for (std::size_t i = 0; i < in.size(); ++i) {
        float amax = 0;
        for (std::size_t j = i / 32 * 32; j < i / 32 * 32 + 32; ++j) amax = std::max(amax, std::fabs(in[j]));
        const BlockScale scale = block_scale(ScaleRule::te, format("e4m3"), amax);
        CHECK(cpu[out][i] == quantize_scaled(format("e4m3"), in[i], scale) * scale.decode);
    }
}

TEST_CASE("delayed scales are part of what a run goes on from") {
    const Dataset data = digits_data();
    TrainOptions o;
    o.model = model("mlp").defaults;
    o.precision = precision("fp8-delayed");
    o.batch = 16;
    Trainer trainer(o, data, 1);
    for (int i = 0; i < 3; ++i) trainer.step();
    const auto ids = trainer.state_tensors();
    REQUIRE(!trainer.training().delayed_scales.empty());
    for (const DelayedScale& d : trainer.training().delayed_scales) {
        CHECK(std::ranges::find(ids, d.scale) != ids.end());
        CHECK(std::ranges::find(ids, d.history) != ids.end());
        CHECK(trainer.backend()[d.scale][0] != 1);
        CHECK(std::ranges::count_if(trainer.backend()[d.history], [](float x) { return x != 0; }) == 3);
    }
    Trainer other(o, data, 1);
    for (std::size_t i = 0; i < ids.size(); ++i)
        std::ranges::copy(trainer.backend()[ids[i]], other.backend()[other.state_tensors()[i]].begin());
    other.restore(trainer.state());
    CHECK(other.step().loss == trainer.step().loss);
}

TEST_CASE("a precision that scales nothing is a mistake") {
    const Dataset data = digits_data();
    TrainOptions o;
    o.model = model("mlp").defaults;
    o.precision = precision("fp8-current");
    o.precision.layers = {{"h.0", "scaling=none"}, {"h.1", "scaling=none"}, {"head", "scaling=none"}};
    CHECK_THROWS_AS(build_training_program(o, data), std::invalid_argument);
    CHECK_THROWS_AS(precision("fp32,scaling=te"), std::invalid_argument);
    CHECK_THROWS_AS(scaling_recipe(""), std::invalid_argument);
}

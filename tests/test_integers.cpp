// Products of integers that are summed in INT32, against integers of any size; layers that compute with them, against
// plain loops over integers; and the precisions int8 and int4.
#include "accumulator_inputs.h"
#include "sweep.h"

#include <ampscope/formats/dot.h>
#include <ampscope/sim/analysis/conformance/exact_arithmetic.h>
#include <ampscope/sim/backend/cpu/cpu.h>
#include <ampscope/sim/backend/cpu/detail/accumulate.h>
#include <ampscope/sim/program/graph.h>
#include <ampscope/sim/train/serving.h>

#include <doctest/doctest.h>

#include <cmath>

using namespace amp;
using namespace amp::test;

namespace {

std::uint32_t bits(float x) { return std::bit_cast<std::uint32_t>(x); }

/// Integers of a format: any, the ends, or all the least, whose products add up fastest.
std::vector<float> integers(const FormatSpec& f, std::size_t n, std::mt19937& random) {
    const auto least = f.negatives == Negatives::twos_complement ? -(1 << (f.bits() - 1)) : 1 - (1 << (f.bits() - 1)),
               largest = (1 << (f.bits() - 1)) - 1;
    const auto kind = random() % 4;
    std::vector<float> x;
    for (std::size_t i = 0; i < n; ++i) {
        const int any = least + static_cast<int>(random() % static_cast<unsigned>(largest - least + 1)),
                  end = random() % 2 == 0 ? least : largest;
        x.push_back(static_cast<float>(kind == 0 ? least : kind == 1 ? largest : kind == 2 ? end : any));
    }
    return x;
}

/// A sum so far: any INT32 that a float holds, most of them near the ends, so that the sum runs over.
float addend(std::mt19937& random) {
    const float near = 0x1p31F - 128.0F * static_cast<float>(1 + random() % 20);
    switch (random() % 8) {
    case 0: return 0;
    case 1: return static_cast<float>(static_cast<std::int32_t>(random()));
    case 2:
    case 3:
    case 4: return near;
    default: return random() % 8 == 0 ? -0x1p31F : -near;
    }
}

} // namespace

TEST_CASE("100,000 dot products of each row, more than 30,000 (INT4: 10,000) with sums that run over INT32") {
    for (const std::string name : {"int32", "int32-satfinite", "int32-satfinite-k64"}) {
        std::vector<oracle::Matrix> matrices;
        for (const oracle::Matrix& m : oracle::matrices())
            if (m.name == name) matrices.push_back(m);
        REQUIRE(matrices.size() == (name.ends_with("k64") ? 2 : 3));
        const Accumulator acc = accumulator(name);
        std::atomic<std::uint64_t> over = 0;
        prove("dot products in " + name, 100000, [&](std::uint64_t index, Tally& tally) {
            const oracle::Matrix& m = matrices[index % matrices.size()];
            const FormatSpec fa = format(m.a), fb = format(m.b);
            std::mt19937 random(static_cast<std::uint32_t>(index));
            const std::size_t k = random() % 200;
            const std::vector<float> a = integers(fa, k, random), b = integers(fb, k, random);
            const float c = addend(random), got = dot(acc, fa, fb, a, b, c);
            const auto where = [&] { return fmt::format("{} {}, k {}, c {}, case {}", name, m.a, k, c, index); };
            tally.expect(bits(got), oracle::dot(m, a, b, c), where);
            double whole = c;
            for (std::size_t i = 0; i < k; ++i) whole += static_cast<double>(a[i]) * b[i];
            over += std::fabs(whole) > 0x1p31 ? 1 : 0;
            std::vector<std::uint32_t> x, y;
            for (std::size_t i = 0; i < k; ++i) x.push_back(encode(fa, a[i])), y.push_back(encode(fb, b[i]));
            tally.expect(exact::dot(acc, {fa, fb}, x, y, bits(c)), bits(got), where);
        });
        INFO(name);
        const std::uint64_t enough = name.ends_with("k64") ? 10000 : 30000;
        CHECK(over > (under_sanitizers ? enough / inputs_a_sample / 2 : enough));
    }
}

TEST_CASE("sums that run over by themselves, in the fast product too") {
    constexpr std::int64_t k = 300000; // 2^14 each: over after 131,072
    std::vector<float> a(k, -128), b(k, -128), out(2);
    for (std::size_t i = 0; i < k; i += 1000) a[i] = 127;
    const cpu::MatrixView rows{a.data(), k, 1}, columns{b.data(), 1, 0};
    std::int64_t whole = 0, clamped = 0;
    for (std::size_t i = 0; i < k; ++i) {
        const auto product = static_cast<std::int64_t>(a[i] * b[i]);
        whole += product;
        clamped += product;
        if (i % 32 == 31 || i + 1 == k) clamped = std::min<std::int64_t>(clamped, 2147483647);
    }
    CHECK(whole > 2147483647);
    for (const char* name : {"int32", "int32-satfinite"}) {
        const Accumulator acc = accumulator(name);
        const auto want = static_cast<float>(acc.method == Accumulation::wrapped
                                                 ? static_cast<std::int32_t>(static_cast<std::uint32_t>(whole))
                                                 : static_cast<std::int32_t>(clamped));
        CHECK(dot(acc, format("int8"), format("int8"), a, b) == want);
        CHECK(int32_dot(acc, a, b) == (acc.method == Accumulation::wrapped
                                           ? static_cast<std::int32_t>(whole - (std::int64_t{1} << 32))
                                           : static_cast<std::int32_t>(clamped)));
        cpu::accumulate(acc, format("int8"), format("int8"), rows, columns, out.data(), 1, 2, k, 1);
        CHECK(out == std::vector<float>{want, want});
    }
}

TEST_CASE("a sum of codes less their zero points is the sum that kernels correct, modulo 2^32") {
    prove("zero points beside the sum", 20000, [](std::uint64_t index, Tally& tally) {
        std::mt19937 random(static_cast<std::uint32_t>(index));
        const std::size_t k = 1 + random() % 100;
        const auto za = static_cast<std::int32_t>(random() % 256), zb = static_cast<std::int32_t>(random() % 256);
        std::vector<float> a, b;
        std::uint32_t codes = 0, sum_a = 0, sum_b = 0;
        for (std::size_t i = 0; i < k; ++i) {
            const auto x = static_cast<std::int32_t>(random() % 256), y = static_cast<std::int32_t>(random() % 256);
            a.push_back(static_cast<float>(x - za));
            b.push_back(static_cast<float>(y - zb));
            codes += static_cast<std::uint32_t>(x * y);
            sum_a += static_cast<std::uint32_t>(x);
            sum_b += static_cast<std::uint32_t>(y);
        }
        const std::uint32_t corrected = codes - static_cast<std::uint32_t>(za) * sum_b -
                                        static_cast<std::uint32_t>(zb) * sum_a +
                                        static_cast<std::uint32_t>(k) * static_cast<std::uint32_t>(za * zb);
        tally.expect(static_cast<std::uint32_t>(int32_dot(accumulator("int32"), a, b)), corrected,
                     [&] { return fmt::format("case {}", index); });
    });
}

TEST_CASE("what a row of integers takes") {
    for (const char* name : {"int32", "int32-satfinite"}) {
        const Accumulator acc = accumulator(name);
        for (const char* f : {"int8", "int4", "int8sym", "int4sym", "e0m3"}) CHECK(acc.takes(format(f)));
        for (const char* f : {"fp32", "e4m3", "e2m1", "mxint8", "bf16"}) CHECK_FALSE(acc.takes(format(f)));
        CHECK(acc.takes(BlockScaling{.element = format("int8"), .rule = ScaleRule::affine}.stored()) ==
              (name == std::string("int32")));
        CHECK(acc.evidence == Evidence::stated);
        CHECK(acc.takes(BlockScaling{.element = format("int4"), .rule = ScaleRule::affine}.stored()) ==
              (name == std::string("int32")));
        CHECK_THROWS_AS(accumulator(std::string(name) + "-acc16"), std::invalid_argument);
        CHECK_THROWS_AS(accumulator(std::string(name) + "-promote16"), std::invalid_argument);
        // Whatever the floats are, there is a result.
        const float odd[] = {NAN, HUGE_VALF, 1.5F}, one[] = {1, 1, 1};
        CHECK(dot(acc, format("int8"), format("int8"), odd, one, NAN) == 32769);
        CHECK(dot(acc, format("int8"), format("int8"), {}, {}, HUGE_VALF) == 0x1p31F);
    }
    CHECK_THROWS_AS(flushes_subnormals("int32"), std::invalid_argument);
    const Accumulator wide = accumulator("int32-satfinite-k64"); // an instruction of INT4 alone
    for (const char* f : {"int4", "int4sym", "e0m3"}) CHECK(wide.takes(format(f)));
    CHECK_FALSE(wide.takes(format("int8")));
}

namespace {

/// A layer under a precision, and what it computes in integers by plain loops.
struct Layer {
    static constexpr std::int64_t tokens = 7, inputs = 200, outputs = 5;
    Program program;
    TensorId x, weight, out, loss;

    explicit Layer(const std::string& name) {
        Graph g(program, precision(name));
        const Graph::Scope scope = g.scope("layer");
        x = g.parameter("x", {tokens, inputs}, {});
        weight = g.parameter("weight", {outputs, inputs}, {});
        out = op::linear(g, x, weight, {});
        loss = op::sum(g, op::mul(g, out, out));
        g.differentiate(loss);
    }
    [[nodiscard]] Cpu run() const {
        Cpu cpu(program, 2);
        std::mt19937 random(3);
        std::normal_distribution<float> normal;
        for (float& v : cpu[x]) v = normal(random) + 0.5F;
        for (float& v : cpu[weight]) v = normal(random) / 10;
        replay(cpu, program.forward);
        replay(cpu, program.backward);
        return cpu;
    }
};

/// INT8 with the scale of its amax.
std::pair<std::vector<int>, float> symmetric(std::span<const float> x) {
    float amax = 0;
    for (const float v : x) amax = std::max(amax, std::fabs(v));
    const float s = 127 / amax;
    std::vector<int> q;
    for (const float v : x) q.push_back(static_cast<int>(std::nearbyint(v * s)));
    return {q, 1 / s};
}

/// INT4 less its zero point.
std::pair<std::vector<int>, float> with_zero(std::span<const float> x) {
    float least = 0, largest = 0;
    for (const float v : x) least = std::min(least, v), largest = std::max(largest, v);
    const float s = (largest - least) / 15;
    const int z = static_cast<int>(std::nearbyint(-least / s));
    std::vector<int> q;
    for (const float v : x) q.push_back(std::clamp(static_cast<int>(std::nearbyint(v / s)) + z, 0, 15) - z);
    return {q, s};
}

} // namespace

TEST_CASE("layers in int8 and int4 are sums of integers, scaled in FP32; backward reads what forward was given") {
    for (const bool int4 : {false, true}) {
        const Layer layer(int4 ? "fp32,scaling=int4,accumulate-forward=int32"
                               : "fp32,scaling=int8,accumulate-forward=int32");
        const Cpu cpu = layer.run();
        const std::int64_t group = int4 ? 128 : Layer::inputs; // the second group has 72 numbers only
        for (std::int64_t i = 0; i < Layer::tokens; ++i)
            for (std::int64_t j = 0; j < Layer::outputs; ++j) {
                const auto row = std::span<const float>(cpu[layer.x])
                                     .subspan(static_cast<std::size_t>(i * Layer::inputs), Layer::inputs);
                const auto column = std::span<const float>(cpu[layer.weight])
                                        .subspan(static_cast<std::size_t>(j * Layer::inputs), Layer::inputs);
                const auto [a, a_scale] = symmetric(row);
                float total = 0;
                for (std::int64_t k = 0; k < Layer::inputs; k += group) {
                    const auto part = column.subspan(static_cast<std::size_t>(k),
                                                     static_cast<std::size_t>(std::min(group, Layer::inputs - k)));
                    const auto [b, b_scale] = int4 ? with_zero(part) : symmetric(part);
                    std::int64_t sum = 0;
                    for (std::size_t l = 0; l < b.size(); ++l) sum += a[static_cast<std::size_t>(k) + l] * b[l];
                    total = std::fma(static_cast<float>(sum), a_scale * b_scale, total);
                }
                CHECK(bits(cpu[layer.out][static_cast<std::size_t>(i * Layer::outputs + j)]) == bits(total));
            }
        // The gradient of the weight is that of FP32 products of 2 * out and x.
        std::size_t products = 0;
        for (const Instruction& i : layer.program.backward)
            if (const auto* m = std::get_if<op::Matmul>(&i.op)) {
                CHECK_FALSE(m->a_scale.scale);
                CHECK(m->arithmetic.accumulate.is_fp32_chain());
                ++products;
            }
        CHECK(products == 2);
    }
}

TEST_CASE("precisions of integers") {
    for (const char* name : {"int8", "int4"}) {
        const Precision p = precision(name);
        REQUIRE(p.scaling);
        CHECK(p.scaling->name == name);
        CHECK(p.scaling->backward == BackwardOperands::high_precision);
        CHECK(names_of(p.accumulators) == "int32");
        CHECK(p.backward_accumulators.empty());
    }
    CHECK(precision("int4,scaling-weight-block=1x32").scaling->weight.along == 32);
    CHECK(precision("int8,accumulate-forward=int32-satfinite").accumulators[0].method == Accumulation::clamped);
    const OperandScaling groups = served_scaling(Served::weights, "int4-affine-1x128");
    CHECK(groups.rule == ScaleRule::affine);
    CHECK(groups.along == 128);
    CHECK(groups.across == 1);
    CHECK(served_scaling(Served::activations, "int8-affine-row").along == 0);
    const OperandScaling smaller = served_scaling(Served::weights, "int4-affine-1x128:1x32");
    CHECK(smaller.rule == ScaleRule::affine);
    CHECK(smaller.along == 32);
    const OperandScaling symmetric = served_scaling(Served::weights, "int4:1x64");
    CHECK(symmetric.rule == ScaleRule::te);
    CHECK(symmetric.along == 64);
    CHECK(symmetric.across == 1);
    CHECK_THROWS_WITH(served_scaling(Served::weights, "int4:row"),
                      "'int4:row': expected tensor, channel, one or a block such as 1x32 after the colon");
    CHECK_THROWS(served_scaling(Served::weights, "int4:1x"));
}

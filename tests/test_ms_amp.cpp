// MS-AMP's optimizer, all-reduce and stored tensors, against a twin that stores codes and scales as MS-AMP does
// (msamp/optim/adamw.cu and adamw.py, common/tensor/meta.py, nn/distributed.py).
#include "sweep.h"

#include <ampscope/formats/environment.h>
#include <ampscope/sim/backend/cpu/cpu.h>
#include <ampscope/sim/backend/kernels/quantize.h>
#include <ampscope/sim/train/plan.h>
#include <ampscope/sim/train/trainer.h>

#include <doctest/doctest.h>

#include <cmath>

using namespace amp;
using namespace amp::test;

namespace {

/// A narrow format given by its parameters, and rounding to it in double.
struct Narrow {
    const char* name;
    int fraction_bits, min_exponent;
    double max;
    bool saturates;

    [[nodiscard]] double code(double x) const {
        if (x == 0 || std::isnan(x)) return x;
        if (std::isinf(x)) return saturates ? std::copysign(max, x) : x;
        const double unit = std::ldexp(1.0, std::max(std::ilogb(x), min_exponent) - fraction_bits);
        const double rounded = std::nearbyint(x / unit) * unit;
        if (std::fabs(rounded) <= max) return rounded;
        return std::copysign(saturates ? max : HUGE_VAL, x);
    }
};
constexpr Narrow e4m3{"e4m3", 3, -6, 448, true}, fp16{"fp16", 10, -14, 65504, false};

/// MS-AMP's compute_scaling_factor(amax, 1, fp_max, 0).
float scale_of(const Narrow& f, float amax) {
    if (!(amax > 0) || std::isinf(amax)) return 1;
    const float quotient = static_cast<float>(f.max) / amax;
    return std::isinf(quotient) ? quotient : std::ldexp(1.0F, std::ilogb(quotient));
}

/// MS-AMP's ScalingTensor.
struct Kept {
    Narrow format;
    std::vector<double> codes;
    float inverse = 1;

    void store(const std::vector<float>& values) {
        float amax = 0;
        for (const float x : values) amax = std::fmax(amax, std::fabs(x));
        const float scale = scale_of(format, amax);
        codes.clear();
        for (const float x : values) codes.push_back(format.code(static_cast<double>(x) * scale));
        inverse = 1 / scale;
    }
    [[nodiscard]] float value(std::size_t i) const { return static_cast<float>(codes[i]) * inverse; }
};

struct Twin {
    Kept weight{fp16, {}}, m{e4m3, {}}, v{fp16, {}};

    void step(bool decouples, float lr, float decay, int t, const std::vector<float>& gradient) {
        const float beta1 = 0.9F, beta2 = 0.999F, eps = 1e-8F;
        const auto correction1 = static_cast<float>(1 - std::pow(static_cast<double>(beta1), t));
        const auto correction2 = static_cast<float>(1 - std::pow(static_cast<double>(beta2), t));
        const float step_size = lr / correction1, root = std::sqrt(correction2);
        std::vector<float> w, first, second;
        for (std::size_t i = 0; i < gradient.size(); ++i) {
            float p = weight.value(i), g = gradient[i];
            if (decouples) p *= static_cast<float>(1 - static_cast<double>(lr) * decay);
            else g = g + decay * p;
            first.push_back(beta1 * static_cast<float>(m.codes[i]) * m.inverse + (1.0F - beta1) * g);
            second.push_back(beta2 * static_cast<float>(v.codes[i]) * v.inverse + (1.0F - beta2) * (g * g));
            const float denominator = std::sqrt(second.back()) / root + eps;
            w.push_back(p - step_size * (first.back() / denominator));
        }
        weight.store(w);
        m.store(first);
        v.store(second);
    }
};

std::vector<float> random_numbers(std::size_t count, std::uint32_t& seed, double scale, int spread) {
    std::vector<float> values;
    for (std::size_t i = 0; i < count; ++i) {
        seed = seed * 1664525 + 1013904223;
        const int e = -static_cast<int>((seed >> 7) % static_cast<unsigned>(spread + 1));
        values.push_back(static_cast<float>(scale * std::ldexp(seed / 0x1p31 - 1, e)));
    }
    return values;
}

void compare(const std::vector<float>& got, const Kept& want, const char* what, Tally& tally) {
    for (std::size_t i = 0; i < got.size(); ++i)
        if (std::isnan(want.value(i)))
            tally.expect(std::bit_cast<std::uint32_t>(got[i]), 0x7fc00000U, [] { return "NaN"; });
        else tally.expect(got[i], want.value(i), [&] { return fmt::format("{} {}", what, i); });
}

constexpr std::size_t count = 700;

} // namespace

TEST_CASE("scales are powers of two, and an infinite amax turns the scale over") {
    const op::DelayedRule rule{.max = 448, .margin = 0, .ms_amp = true};
    CHECK(kernels::next_scale(rule, 1, 5) == 256); // 2^floor(log2 448)
    CHECK(kernels::next_scale(rule, 500, 5) == 0.5F);
    CHECK(kernels::next_scale({.max = 448, .margin = 2, .ms_amp = true}, 1, 5) == 64);
    CHECK(kernels::next_scale(rule, 0, 5) == 5);
    CHECK(kernels::next_scale(rule, std::numeric_limits<float>::infinity(), 4) == 0.25F);
    CHECK(std::isinf(kernels::next_scale({.max = 448, .margin = 2, .ms_amp = true}, 1e-38F, 5))); // of an overflow
}

TEST_CASE("LBAdam and LBAdamW with state in FP8 and FP16") {
    const FloatEnvironment environment;
    Tally tally;
    for (const char* name : {"lbadamw", "lbadam"})
        for (const double size : {1.0, 1e-4, 1e-10, 1e-17, 0.0}) {
            OptimizerOptions o = optimizer(name).options;
            o.weight_decay = 0.125;
            std::uint32_t seed = 5;
            Twin twin;
            twin.weight.store(random_numbers(count, seed, 1, 20));
            twin.m.store(std::vector<float>(count));
            twin.v.store(std::vector<float>(count));
            std::vector<float> w(count), m(count), v(count);
            for (std::size_t i = 0; i < count; ++i) w[i] = twin.weight.value(i);
            for (int t = 1; t <= 40; ++t) {
                const std::vector<float> gradient = random_numbers(count, seed, size, 24);
                const std::vector<float> before = w;
                const FormatSpec f = format("fp32");
                const UpdateCounts counts = update(o, {.t = t, .learning_rate = 0x1p-9},
                                                   {.weight_format = f,
                                                    .m_format = f,
                                                    .v_format = f,
                                                    .weight = w,
                                                    .gradient = gradient,
                                                    .m = m,
                                                    .v = v,
                                                    .compensation = {},
                                                    .scaled = {.weight = scaled_format("fp16:tensor", true),
                                                               .m = scaled_format("e4m3:tensor", true),
                                                               .v = scaled_format("fp16:tensor", false)}});
                twin.step(o.kind == OptimizerKind::adamw, 0x1p-9F, 0.125F, t, gradient);
                compare(w, twin.weight, "weight", tally);
                compare(m, twin.m, "m", tally);
                compare(v, twin.v, "v", tally);
                UpdateCounts want;
                for (std::size_t i = 0; i < count; ++i) {
                    want.lost += w[i] == before[i] && gradient[i] != 0;
                    want.nonfinite += !std::isfinite(w[i]);
                    want.changed += std::isfinite(w[i]) && w[i] != before[i];
                }
                tally.expect(counts.lost, want.lost, [] { return "lost"; });
                tally.expect(counts.changed, want.changed, [] { return "changed"; });
                tally.expect(counts.nonfinite, want.nonfinite, [] { return "not finite"; });
            }
            // Gradients below about 6e-16 make v's scale infinite and everything NaN: MS-AMP's amax has no lower limit.
            CHECK(std::isnan(v[0]) == (size == 1e-17 && o.kind == OptimizerKind::adamw));
        }
    report("MS-AMP's optimizer", tally);
    CHECK(tally.mismatches == 0);
}

TEST_CASE("MS-AMP's all-reduce: one scale for all replicas, sums in E4M3") {
    const FloatEnvironment environment;
    Tally tally;
    for (const std::size_t replicas : {1U, 2U, 3U, 8U})
        for (const double size : {1.0, 3e-6}) {
            Program program;
            op::AllReduce op{.in = {}, .out = {}, .transport = format("e4m3"), .scaled = true};
            for (std::size_t i = 0; i <= replicas; ++i) {
                program.tensors.push_back({.name = fmt::format("{}", i), .shape = {count}, .format = format("fp32")});
                const TensorId id{static_cast<std::int32_t>(i)};
                if (i < replicas) op.in.push_back(id);
                else op.out = id;
            }
            Cpu cpu(program, 1);
            std::uint32_t seed = 77;
            float amax = 0;
            for (const TensorId id : op.in) {
                // Replicas agree on the first 100 values: their sum exceeds the largest value and saturates.
                std::vector<float> values = random_numbers(count, seed, size, 10);
                for (std::size_t i = 0; i < 100; ++i) values[i] = static_cast<float>(size);
                for (const float x : values) amax = std::max(amax, std::fabs(x));
                std::ranges::copy(values, cpu[id].begin());
            }
            const auto n = static_cast<float>(replicas);
            const float scale = scale_of(e4m3, amax) * static_cast<float>(1 / std::sqrt(static_cast<double>(replicas)));
            const float inverse = 1 / scale / n;
            run(cpu, op);
            const std::size_t length = count / replicas, longer = count % replicas;
            for (std::size_t i = 0, chunk = 0, end = length + (longer > 0 ? 1 : 0); i < count; ++i) {
                if (i == end) ++chunk, end += length + (chunk < longer ? 1 : 0);
                double sum = 0;
                for (std::size_t s = 1; s <= replicas; ++s) {
                    const float x = cpu[op.in[(chunk + s) % replicas]][i];
                    const double sent = e4m3.code(static_cast<double>(x * scale));
                    sum = s == 1 ? sent : e4m3.code(sum + sent);
                }
                tally.expect(cpu[op.out][i], static_cast<float>(sum) * inverse, [&] { return fmt::format("{}", i); });
            }
            if (replicas == 8) CHECK(cpu[op.out][0] < 0.9 * size); // the loss by saturation
            cpu[op.in.back()][3] = HUGE_VALF;
            run(cpu, op);
            CHECK(std::isnan(cpu[op.out][3]));
            CHECK(std::isfinite(cpu[op.out][4]));
        }
    report("MS-AMP's all-reduce", tally);
    CHECK(tally.mismatches == 0);
}

namespace {

TrainOptions ms_amp_training() {
    TrainOptions o;
    o.model = model("mlp").defaults;
    o.precision = precision("ms-amp");
    o.optimizer = optimizer("lbadamw").options;
    o.batch = 16;
    return o;
}

} // namespace

TEST_CASE("layers in FP8 have FP16 master weights; every parameter's moments are narrow") {
    const Dataset data = digits_data();
    TrainOptions o = ms_amp_training();
    o.all_reduce = {.transport = format("e4m3"), .scaled = true};
    Trainer trainer(o, data, 1);
    const TrainingProgram& t = trainer.training();
    int scaled = 0, plain = 0;
    for (const ParameterTensors& p : t.parameters) {
        const TensorInfo &weight = t.program[p.weight], &m = t.program[p.m], &v = t.program[p.v];
        CAPTURE(weight.name);
        const bool layer = weight.shape.size() == 2 && weight.name.find("head") == std::string::npos;
        CHECK(weight.kept_as() == format(layer ? "fp16" : "fp32"));
        CHECK(weight.format == format("fp32"));
        CHECK(m.kept_as() == format("e4m3"));
        CHECK(v.kept_as() == format("fp16"));
        ++(layer ? scaled : plain);
        if (!layer) continue;
        std::vector<float> again(trainer.backend()[p.weight].begin(), trainer.backend()[p.weight].end());
        keep_scaled({format("fp16")}, again); // as stored at the start
        CHECK(std::ranges::equal(again, trainer.backend()[p.weight]));
    }
    CHECK(scaled > 0);
    CHECK(plain > 0);
    std::int64_t reductions = 0; // also with one replica: gradients of such weights are stored in E4M3
    for (const Instruction& i : t.program.check)
        if (const auto* const r = std::get_if<op::AllReduce>(&i.op)) reductions += r->scaled && r->in.size() == 1;
    CHECK(reductions == scaled);
    const double bytes = memory_of(t).bytes_per_parameter();
    o.precision = precision("fp8-delayed");
    o.all_reduce = {};
    CHECK(bytes < memory_of(Trainer(o, data, 1).training()).bytes_per_parameter() - 5);
    const double before = trainer.step().loss;
    for (int i = 0; i < 60; ++i) trainer.step();
    CHECK(trainer.step().loss < 0.7 * before);
}

TEST_CASE("formats of master weights and moments, with a scale or without") {
    const Precision p = precision("fp32,m=e4m3:tensor,v=bf16,master=fp16:tensor");
    CHECK(p.scaled_state == ScaledState{.weight = ScaledFormat{format("fp16")}, .m = ScaledFormat{format("e4m3")}});
    CHECK(p.m == format("fp32"));
    CHECK(p.v == format("bf16"));
    CHECK(precision("ms-amp,m=bf16").scaled_state.m == std::nullopt);
    for (const char* wrong :
         {"fp32,m=e4m3:channel", "fp32,m=:tensor", "fp32,v=e8m0:tensor", "fp32,activations=fp16:tensor"})
        CHECK_THROWS_AS(precision(wrong), std::invalid_argument);
    const Dataset data = digits_data();
    TrainOptions o = ms_amp_training();
    o.precision = p; // without a recipe: applies to every parameter
    const TrainingProgram t = build_training_program(o, data);
    for (const ParameterTensors& q : t.parameters) CHECK(t.program[q.weight].kept_as() == format("fp16"));
}

TEST_CASE("without amax reduction replicas have scales of their own") {
    const Dataset data = digits_data();
    TrainOptions o = ms_amp_training();
    o.replicas = 2;
    for (const char* reduce : {"on", "off"}) {
        o.precision = precision(std::string("fp8-delayed,scaling-history=4,scaling-reduce=") + reduce);
        Trainer trainer(o, data, 1);
        for (int i = 0; i < 3; ++i) trainer.step();
        bool differ = false;
        for (const DelayedScale& d : trainer.training().delayed_scales) {
            const std::span<const float> scales = trainer.backend().read(d.scale);
            const std::span<const float> history = trainer.backend().read(d.history);
            REQUIRE(scales.size() == (std::string_view(reduce) == "off" ? 2 : 1));
            CHECK(history.size() == 4 * scales.size());
            differ |= scales.front() != scales.back();
            for (std::size_t r = 0; r < scales.size(); ++r) { // each follows from the largest amax of its own history
                float amax = 0;
                for (std::size_t i = 0; i < 4; ++i) amax = std::max(amax, history[4 * r + i]);
                CHECK(scales[r] == d.rule.max / amax);
            }
        }
        CHECK(differ == (std::string_view(reduce) == "off"));
        CHECK(std::isfinite(trainer.evaluate().loss));
    }
    CHECK_THROWS_AS(precision("fp8-delayed,scaling-reduce=maybe"), std::invalid_argument);
    CHECK_THROWS_AS(precision("fp8-current,scaling-reduce=off"), std::invalid_argument);
}

// Replays of loss scalers: against runs that really used these scalers, against element-wise counts, and by hand.
#include "sweep.h"

#include <ampscope/formats/codec.h>
#include <ampscope/sim/analysis/histogram_log.h>
#include <ampscope/sim/findings/loss_scale_replay.h>
#include <ampscope/sim/io/step_log.h>
#include <ampscope/sim/train/trainer.h>

#include <doctest/doctest.h>

#include <cmath>

using namespace amp;
using namespace amp::test;

namespace {

const FormatSpec fp16 = format("fp16");
constexpr double infinity = std::numeric_limits<double>::infinity();

/// What a run folder records of a run.
struct Recorded {
    std::vector<GradientStep> steps;
    std::vector<double> scales;
    std::vector<std::int64_t> skipped;
};

/// Trains with a learning rate of 0, so that weights stay and gradients do not depend on the scale.
Recorded record(const LossScalerOptions& scaler, double loss_weight, int steps) {
    const Dataset data = digits_data();
    TrainOptions o;
    o.model = model("mlp").defaults;
    o.precision = precision("amp-fp16");
    o.optimizer.learning_rate = 0;
    o.precision.loss_scaler.options = scaler;
    o.loss_weight = loss_weight;
    o.batch = 16;
    Trainer trainer(o, data, 1);
    Recorded r;
    for (int i = 0; i < steps; ++i) {
        const StepResult s = trainer.step();
        GradientStep step{.step = s.step, .amax = std::max(s.amax_weight, s.amax_activation)};
        (s.found_inf ? step.overflow_scale : step.clean_scale) = s.scale;
        r.steps.push_back(step);
        r.scales.push_back(s.scale);
        if (s.verdict != ScalerVerdict::step) r.skipped.push_back(s.step);
    }
    return r;
}

std::vector<double> scales_of(const Replay& replay) {
    std::vector<double> scales;
    for (std::int64_t step = 0; step < replay.steps; ++step) {
        const auto change = std::ranges::find(replay.scales, step, &ScaleChange::step);
        scales.push_back(change == replay.scales.end() ? scales.back() : change->scale);
    }
    return scales;
}

std::vector<std::int64_t> skips_of(const Replay& replay) {
    std::vector<std::int64_t> steps;
    for (const SkippedStep& s : replay.skipped) steps.push_back(s.step);
    return steps;
}

bool has(const Replay& replay, AlarmKind kind, std::int64_t step) {
    return std::ranges::any_of(replay.alarms, [&](const Alarm& a) { return a.kind == kind && a.step == step; });
}

} // namespace

TEST_CASE("what overflows in a format, and how it is known") {
    const auto at = [](double amax, double scale, const char* f) {
        return overflows_at({.step = 0, .amax = amax}, scale, format(f)).overflows;
    };
    CHECK(!at(65519.99, 1, "fp16"));
    CHECK(at(65520, 1, "fp16")); // the tie between 65504 and what would be 65536
    CHECK(!at(464, 1, "e4m3"));  // the tie goes down to 448
    CHECK(at(464.001, 1, "e4m3"));
    CHECK(at(0x1p-20, 0x1p36, "fp16"));
    CHECK(!at(0x1p-20, 0x1p35, "fp16"));
    CHECK(at(1e-30, 0, "fp16")); // 0 / 0
    CHECK(!at(3e38, 1, "bf16"));

    const GradientStep clean{.step = 0, .amax = 1, .clean_scale = 1024};
    const GradientStep overflowed{.step = 0, .amax = 1, .overflow_scale = 1024};
    const auto known = [](const GradientStep& s, double scale) { return overflows_at(s, scale, fp16).known; };
    CHECK(known(clean, 1024) == Known::exact);
    CHECK(known(clean, 2048) == Known::bound);
    CHECK(known(clean, 0x1p20) == Known::exact); // what was recorded overflows
    CHECK(overflows_at(overflowed, 1024, fp16).overflows);
    CHECK(known(overflowed, 1024) == Known::exact);
    CHECK(!overflows_at(overflowed, 512, fp16).overflows);
    CHECK(known(overflowed, 512) == Known::unknown);
}

TEST_CASE("a replay under the recorded scaler is the recorded run") {
    LossScalerOptions scaler = loss_scaler("torch").options;
    scaler.growth_interval = 5;
    const Recorded r = record(scaler, 64, 40);
    CHECK(r.skipped.size() > 3);
    const Replay replay = replay_scaler(scaler, r.steps, fp16);
    CHECK(scales_of(replay) == r.scales);
    CHECK(skips_of(replay) == r.skipped);
    CHECK(replay.known[0] == 40);
    CHECK(replay.steps == 40);
}

TEST_CASE("overflows under another scale are computed: the run that had it agrees") {
    LossScalerOptions low = loss_scaler("torch").options;
    low.init_scale = 16;
    low.growth_interval = 1'000'000;
    const Recorded clean = record(low, 64, 40); // nothing overflows, so every magnitude is recorded
    REQUIRE(clean.skipped.empty());
    for (const char* name : {"torch", "megatron", "deepspeed", "keras3", "apex-hysteresis"}) {
        CAPTURE(name);
        LossScalerOptions other = loss_scaler(name).options;
        other.growth_interval = 4;
        const Recorded want = record(other, 64, 40);
        REQUIRE(!want.skipped.empty());
        const Replay got = replay_scaler(other, clean.steps, fp16);
        // Gradients that are not recorded (those of ops between the watched ones) may overflow first. Then the replay
        // skips fewer steps, and says that it is unsure about the steps it takes.
        CHECK(got.skipped.size() <= want.skipped.size());
        CHECK(got.skipped.size() + 2 >= want.skipped.size());
        CHECK(std::abs(std::log2(got.final_scale) - std::log2(want.scales.back())) <= 2);
        for (const SkippedStep& s : got.skipped) CHECK(s.known == Known::exact);
    }
}

TEST_CASE("underflow is that of every element, cast one by one") {
    std::vector<GradientStep> steps;
    std::vector<std::vector<float>> values(6);
    std::uint32_t seed = 3;
    for (std::int64_t t = 0; t < 6; ++t) {
        GradientStep step{.step = t, .amax = 1};
        for (int i = 0; i < 2000; ++i) {
            seed = seed * 1664525 + 1013904223;
            const float x = std::ldexp(static_cast<float>(seed >> 8), -24 - static_cast<int>(seed % 50));
            values[static_cast<std::size_t>(t)].push_back(x);
            step.magnitudes.add(unpack(x));
        }
        steps.push_back(step);
    }
    LossScalerOptions o = loss_scaler("torch").options;
    o.init_scale = 4;
    o.growth_interval = 1; // 4, 8, 16 ...
    const Replay replay = replay_scaler(o, steps, fp16);
    std::uint64_t underflow = 0, nonzero = 0;
    for (std::size_t t = 0; t < 6; ++t)
        for (const float x : values[t]) {
            nonzero += x != 0;
            underflow += x != 0 && quantize(fp16, std::ldexp(static_cast<double>(x), 2 + static_cast<int>(t))) == 0;
        }
    CHECK(replay.underflow == underflow);
    CHECK(replay.nonzero == nonzero);
    CHECK(replay.underflow_known == Known::exact);
    CHECK(replay.counted == 6);
    steps[2].censoring = {.below_log2 = -25, .zeros = 1};
    CHECK(replay_scaler(o, steps, fp16).underflow_known == Known::bound);
    steps[2].censoring = {};
    LossScalerOptions between = o; // no powers of two: counted at the next higher one, where no more is lost
    between.init_scale = 3;
    CHECK(replay_scaler(between, steps, fp16).underflow == underflow);
    CHECK(replay_scaler(between, steps, fp16).underflow_known == Known::bound);
    std::uint64_t lost = 0;
    for (std::size_t t = 0; t < 6; ++t)
        for (const float x : values[t]) lost += x != 0 && quantize(fp16, std::ldexp(3.0 * x, static_cast<int>(t))) == 0;
    CHECK(replay_scaler(between, steps, fp16).underflow <= lost); // at least so much underflows
    CHECK(underflow < lost);
}

TEST_CASE("what goes wrong is said, with the step") {
    std::vector<GradientStep> bad, good;
    for (std::int64_t t = 0; t < 300; ++t) {
        bad.push_back({.step = t, .amax = 1e-3, .overflow_scale = 0});
        good.push_back({.step = t, .amax = 1e-3});
    }
    const Replay torch = replay_scaler(loss_scaler("torch").options, bad, fp16);
    CHECK(has(torch, AlarmKind::below_one, 16));   // 2^16 is halved 17 times
    CHECK(has(torch, AlarmKind::zero_scale, 165)); // 2^-149 becomes 0
    CHECK(torch.skips == 300);
    CHECK(torch.skipped.size() == 300);
    const Replay unlisted = replay_scaler(loss_scaler("torch").options, bad, fp16, 7);
    CHECK(unlisted.skips == 300);
    CHECK(unlisted.skipped.size() == 7);
    CHECK(unlisted.scales.size() == 7);
    CHECK(unlisted.time == torch.time);
    CHECK(!torch.first_good);
    CHECK(torch.final_scale == 0);
    const Replay megatron = replay_scaler(loss_scaler("megatron").options, bad, fp16);
    CHECK(std::ranges::any_of(megatron.alarms, [](const Alarm& a) { return a.kind == AlarmKind::stuck_at_minimum; }));
    CHECK(megatron.final_scale == 1);
    const Replay deepspeed = replay_scaler(loss_scaler("deepspeed").options, bad, fp16);
    REQUIRE(deepspeed.alarms.size() > 0);
    CHECK(deepspeed.alarms.front().kind == AlarmKind::aborts);
    CHECK(deepspeed.steps == deepspeed.alarms.front().step + 1);
    CHECK(has(replay_scaler(loss_scaler("none").options, bad, fp16), AlarmKind::poisons, 0));
    CHECK(has(replay_scaler(loss_scaler("torch").options, good, fp16), AlarmKind::shorter_than_interval, 0));
    CHECK(replay_scaler(scaler_options("torch,interval=20"), good, fp16).alarms.empty());
    std::vector<GradientStep> alternating = good;
    for (std::size_t t = 0; t < 300; t += 10) alternating[t].overflow_scale = 0;
    CHECK(has(replay_scaler(scaler_options("torch,interval=20"), alternating, fp16), AlarmKind::never_grows, 0));
}

TEST_CASE("steps that are missing are like the one before, and not known") {
    const std::vector<GradientStep> steps = {{.step = 10, .amax = 1, .clean_scale = infinity},
                                             {.step = 15, .amax = 1e9}};
    const Replay r = replay_scaler(scaler_options("torch,init=2^8,interval=2"), steps, fp16);
    CHECK(r.steps == 6);
    CHECK(r.known[static_cast<std::size_t>(Known::unknown)] == 4);
    CHECK(skips_of(r) == std::vector<std::int64_t>{15});
    REQUIRE(r.scales.size() == 3);
    CHECK(r.scales[1].step == 12);
    CHECK(r.scales[2].scale == 1024);
    CHECK_THROWS_AS(replay_scaler(loss_scaler("torch").options, {}, fp16), std::invalid_argument);
    const std::vector<GradientStep> far = {{.step = 0}, {.step = longest_run}};
    CHECK_THROWS_AS(replay_scaler(loss_scaler("torch").options, far, fp16), std::invalid_argument);
}

TEST_CASE("a gap is crossed in circles, and comes out as if each of its steps had been taken") {
    std::vector<std::string> names = {"constant,init=2^20", "none"};
    for (const LossScalerRow& row : loss_scalers)
        if (row.options.scaling == LossScaling::dynamic)
            for (const char* change : {"", ",interval=7", ",init=2^2,interval=1"})
                names.push_back(std::string(row.name) + change);
    for (const char* change : {",growth=1.5,backoff=0.3,interval=13", ",max=2^12,interval=5", ",min=2^30,interval=3"})
        names.push_back(std::string("torch") + change);
    for (const std::string& name : names)
        for (const double amax : {0.0, 1.0, 65504.0, 1e30}) {
            CAPTURE(name);
            CAPTURE(amax);
            const LossScalerOptions options = scaler_options(name);
            const std::vector<GradientStep> steps = {
                {.step = 3, .amax = amax}, {.step = 9000, .hidden = true}, {.step = 12000, .amax = 1}};
            LossScalerState state = initial_state(options);
            std::int64_t taken = 0, skips = 0;
            std::map<double, std::int64_t> time;
            for (std::int64_t t = 3; t <= 12000; ++t) { // step by step
                const GradientStep& step = steps[t < 9000 ? 0 : t < 12000 ? 1 : 2];
                ++time[state.scale];
                ++taken;
                const LossScalerUpdate u =
                    update_scale(options, state, overflows_at(step, state.scale, fp16).overflows);
                skips += u.verdict != ScalerVerdict::step;
                state = u.state;
                if (u.verdict == ScalerVerdict::abort) break;
            }
            for (const std::size_t listed : {std::size_t{0}, std::size_t{5}, most_listed_steps}) {
                const Replay r = replay_scaler(options, steps, fp16, listed);
                CHECK(r.steps == taken);
                CHECK(r.known[0] + r.known[1] + r.known[2] == taken);
                CHECK(r.skips == skips);
                CHECK(r.time == time);
                CHECK(r.final_scale == state.scale);
                CHECK(r.skipped.size() == std::min(listed, static_cast<std::size_t>(skips)));
            }
        }
}

TEST_CASE("the sweep puts first what loses least") {
    std::vector<GradientStep> steps;
    for (std::int64_t t = 0; t < 60; ++t) {
        GradientStep step{.step = t, .amax = 0x1p-2};
        for (int e = -40; e < -1; ++e) step.magnitudes.add(unpack(std::ldexp(1.0F, e)), 10);
        steps.push_back(step);
    }
    const std::vector<ScalerReplay> swept = sweep_scalers(steps, fp16);
    REQUIRE(swept.size() > 20);
    for (std::size_t i = 1; i < swept.size(); ++i) CHECK(swept[i - 1].lost() <= swept[i].lost());
    CHECK(swept.front().replay.skips == 0);
    CHECK(swept.front().name == "constant,init=2^17"); // the largest scale that 2^-2 allows: 2^15 < 65504
    for (const ScalerReplay& s : swept) CHECK(scaler_options(s.name) == s.options);
}

TEST_CASE("scalers by name") {
    const LossScalerOptions o =
        scaler_options("megatron,init=2^13,growth=4,interval=7,hysteresis=3,min=0,max=1024,backoff=0.25");
    CHECK(o.init_scale == 8192);
    CHECK(o.growth_factor == 4);
    CHECK(o.growth_interval == 7);
    CHECK(o.hysteresis == 3);
    CHECK(o.min_scale == 0);
    CHECK(o.max_scale == 1024);
    CHECK(o.backoff_factor == 0.25);
    CHECK(scaler_options("torch") == loss_scaler("torch").options);
    for (const char* wrong : {"", "torhc", "torch,", "torch,init", "torch,init=-1", "torch,interval=2.5",
                              "torch,interval=0", "torch,scale=2", "deepspeed,backoff=0.25", "torch,growth=1"})
        CHECK_THROWS_AS(scaler_options(wrong), std::invalid_argument);
}

// Loss scalers: traces of every framework, scales at the ends of their number type, and random sequences against a
// second implementation of each framework (loss_scaler_twins.h).
//
// PyTorch itself is no oracle here: PyPI's build brings gigabytes of CUDA packages, and Debian's python3-torch (1.13)
// has no GradScaler for the CPU.
#include "loss_scaler_twins.h"
#include "sweep.h"

#include <ampscope/sim/optim/loss_scaler.h>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

using namespace amp;
using namespace amp::test;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

LossScalerOptions options_of(std::string_view name, double init, std::int64_t interval) {
    LossScalerOptions options = loss_scaler(name).options;
    options.init_scale = init;
    options.growth_interval = interval;
    return options;
}

/// The state after each step of a sequence of found_inf such as "0001".
std::vector<LossScalerState> trace(const LossScalerOptions& options, std::string_view found_inf) {
    std::vector<LossScalerState> states;
    LossScalerState state = initial_state(options);
    for (const char f : found_inf) {
        const LossScalerUpdate update = update_scale(options, state, f == '1');
        CHECK(update.verdict == (f == '1' ? ScalerVerdict::skip : ScalerVerdict::step));
        CHECK(update.unscale_by == state.scale);
        state = update.state;
        states.push_back(state);
    }
    return states;
}

std::vector<double> scales(const LossScalerOptions& options, std::string_view found_inf) {
    std::vector<double> list;
    for (const LossScalerState& state : trace(options, found_inf)) list.push_back(state.scale);
    return list;
}

/// The state after n equal steps.
LossScalerState after(const LossScalerOptions& options, int n, bool found_inf) {
    return n == 0 ? initial_state(options)
                  : trace(options, std::string(static_cast<std::size_t>(n), "01"[found_inf])).back();
}

/// The sequence that all traces use; the growth interval is 3.
constexpr std::string_view sequence = "0001101000000";
using Scales = std::vector<double>;
constexpr double K = 1024;

} // namespace

TEST_CASE("torch: scale and growth tracker") {
    const LossScalerOptions torch = options_of("torch", 65536, 3);
    CHECK(trace(torch, sequence) == std::vector<LossScalerState>{{64 * K, 1},
                                                                 {64 * K, 2},
                                                                 {128 * K, 0},
                                                                 {64 * K, 0},
                                                                 {32 * K, 0},
                                                                 {32 * K, 1},
                                                                 {16 * K, 0},
                                                                 {16 * K, 1},
                                                                 {16 * K, 2},
                                                                 {32 * K, 0},
                                                                 {32 * K, 1},
                                                                 {32 * K, 2},
                                                                 {64 * K, 0}});
}

TEST_CASE("machines that do as torch on the trace") {
    const Scales torch = scales(options_of("torch", 65536, 3), sequence);
    for (const char* name :
         {"torch-sharded", "torch-sharded-cpu", "apex", "deepspeed-bare", "keras3", "keras2", "jmp"}) {
        CAPTURE(name);
        CHECK(scales(options_of(name, 65536, 3), sequence) == torch);
    }
    const Scales half{32 * K, 32 * K, 64 * K, 32 * K, 16 * K, 16 * K, 8 * K,
                      8 * K,  8 * K,  16 * K, 16 * K, 16 * K, 32 * K};
    for (const char* name : {"keras3", "keras2", "jmp"}) {
        CAPTURE(name);
        CHECK(scales(options_of(name, loss_scaler(name).options.init_scale, 3), sequence) == half);
    }
}

TEST_CASE("DeepSpeed dynamic: hysteresis of 2 and of 2 in a row") {
    LossScalerOptions options = options_of("deepspeed", 65536, 3);
    CHECK(scales(options, sequence) == Scales{64 * K, 64 * K, 128 * K, 128 * K, 64 * K, 64 * K, 32 * K, 32 * K, 32 * K,
                                              64 * K, 64 * K, 64 * K, 128 * K});
    const auto hysteresis = [&] {
        std::vector<std::int64_t> list;
        for (const LossScalerState& state : trace(options, sequence)) list.push_back(state.hysteresis_tracker);
        return list;
    };
    CHECK(hysteresis() == std::vector<std::int64_t>{2, 2, 2, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2});

    options.hysteresis_refill = HysteresisRefill::each_clean_step;
    CHECK(scales(options, sequence) == Scales{64 * K, 64 * K, 128 * K, 128 * K, 64 * K, 64 * K, 64 * K, 64 * K, 64 * K,
                                              128 * K, 128 * K, 128 * K, 256 * K});
    CHECK(hysteresis() == std::vector<std::int64_t>{2, 2, 2, 1, 1, 2, 1, 2, 2, 2, 2, 2, 2});
}

TEST_CASE("DeepSpeed dynamic ends the run at its minimum") {
    for (const std::int64_t hysteresis : {1, 2}) {
        LossScalerOptions options = options_of("deepspeed", 65536, 1000);
        options.hysteresis = hysteresis;
        const int steps = hysteresis == 1 ? 16 : 17;
        CHECK(after(options, steps - 1, true).scale == 2);
        const LossScalerState last = after(options, steps, true);
        CHECK(last.scale == 1);
        const LossScalerUpdate update = update_scale(options, last, true);
        CHECK(update.verdict == ScalerVerdict::abort);
        CHECK(update.state == last);
        CHECK(update_scale(options, last, false).verdict == ScalerVerdict::step);
        options.abort_at_min_scale = false; // raise_error_at_min_scale=False
        CHECK(after(options, 100, true).scale == 1);
    }
    CHECK(after(options_of("deepspeed-fused", 65536, 1000), 100, true).scale == 1);
}

TEST_CASE("DeepSpeed fused: one step later, and no hysteresis") {
    const LossScalerOptions options = options_of("deepspeed-fused", 65536, 3);
    CHECK(scales(options, sequence) ==
          Scales{64 * K, 64 * K, 64 * K, 32 * K, 16 * K, 16 * K, 8 * K, 8 * K, 8 * K, 8 * K, 16 * K, 16 * K, 16 * K});
    CHECK(scales(options, "0000000") == Scales{64 * K, 64 * K, 64 * K, 128 * K, 128 * K, 128 * K, 256 * K});
    CHECK(scales(options_of("deepspeed-bare", 65536, 3), "000000") ==
          Scales{64 * K, 64 * K, 128 * K, 128 * K, 128 * K, 256 * K});
}

TEST_CASE("DeepSpeed's growth step halves the gradient, where asked for") {
    for (const bool fault : {true, false}) {
        LossScalerOptions options = options_of("deepspeed-fused", 4, 1);
        options.unscale_by_updated_scale = fault;
        LossScalerState state = initial_state(options);
        for (const float used : {1.0F, 0.5F, 0.5F}) { // the table of pull request 8588
            const LossScalerUpdate update = update_scale(options, state, false);
            const float scaled = static_cast<float>(state.scale); // a gradient of 1
            CHECK(unscale(options, update.unscale_by, scaled) == (fault ? used : 1.0F));
            state = update.state;
        }
    }
    for (const LossScalerRow& row : loss_scalers) CHECK_FALSE(row.options.unscale_by_updated_scale);
}

TEST_CASE("Megatron: hysteresis that only growth refills") {
    CHECK(trace(options_of("megatron", 65536, 3), sequence) == std::vector<LossScalerState>{{64 * K, 1, 2},
                                                                                            {64 * K, 2, 2},
                                                                                            {128 * K, 0, 2},
                                                                                            {128 * K, 0, 1},
                                                                                            {64 * K, 0, 0},
                                                                                            {64 * K, 1, 0},
                                                                                            {32 * K, 0, -1},
                                                                                            {32 * K, 1, -1},
                                                                                            {32 * K, 2, -1},
                                                                                            {64 * K, 0, 2},
                                                                                            {64 * K, 1, 2},
                                                                                            {64 * K, 2, 2},
                                                                                            {128 * K, 0, 2}});
}

TEST_CASE("Apex: the kernel with hysteresis refills at each clean step") {
    CHECK(scales(options_of("apex-hysteresis", 65536, 3), sequence) == Scales{64 * K, 64 * K, 128 * K, 128 * K, 64 * K,
                                                                              64 * K, 64 * K, 64 * K, 64 * K, 128 * K,
                                                                              128 * K, 128 * K, 256 * K});
}

TEST_CASE("constant skips and stays, none steps whatever is found") {
    const LossScalerOptions constant = options_of("constant", 128, 3);
    CHECK(scales(constant, sequence) == Scales(sequence.size(), 128));
    const LossScalerOptions& none = loss_scaler("none").options;
    for (const bool found_inf : {false, true}) {
        const LossScalerUpdate update = update_scale(none, initial_state(none), found_inf);
        CHECK(update.verdict == ScalerVerdict::step);
        CHECK(update.state.scale == 1);
    }
}

TEST_CASE("GradScaler collapses: 144 overflows to an infinite inverse, 166 to scale 0, and then NaN gradients step") {
    const LossScalerOptions& torch = loss_scaler("torch").options;
    const auto inverse = [&](double scale) { return unscale(torch, scale, 1.0F); };
    CHECK(after(torch, 143, true).scale == 0x1p-127);
    CHECK(inverse(0x1p-127) == 0x1p127F);
    CHECK(after(torch, 144, true).scale == 0x1p-128);
    CHECK(std::isinf(inverse(0x1p-128)));
    CHECK(after(torch, 165, true).scale == 0x1p-149);
    LossScalerState state = after(torch, 166, true);
    CHECK(state.scale == 0);
    // The loss times scale 0 has zero gradients. They are finite, so the step is taken, with 0 * infinity.
    const float scaled_gradient = 0.0F;
    CHECK(std::isfinite(scaled_gradient));
    const LossScalerUpdate update = update_scale(torch, state, !std::isfinite(scaled_gradient));
    CHECK(update.verdict == ScalerVerdict::step);
    CHECK(std::isnan(unscale(torch, update.unscale_by, scaled_gradient)));
    for (int i = 0; i < 4000; ++i) state = update_scale(torch, state, false).state;
    CHECK(state.scale == 0); // a scale of 0 cannot grow

    CHECK(after(loss_scaler("keras3").options, 164, true).scale == 0x1p-149); // the same, from 2^15
    CHECK(after(loss_scaler("keras3").options, 165, true).scale == 0);
    CHECK(after(loss_scaler("apex").options, 1090, true).scale == 0x1p-1074); // in FP64; Apex's logs show such scales
    CHECK(after(loss_scaler("apex").options, 1091, true).scale == 0);
    for (const char* name : {"megatron", "keras2", "jmp"})
        CHECK(after(loss_scaler(name).options, 300, true).scale == 1);
}

TEST_CASE("growth at the upper end") {
    for (const char* name : {"torch", "torch-sharded", "apex-hysteresis", "keras2", "jmp"}) {
        const LossScalerState top = after(options_of(name, 65536, 1), 300, false);
        CHECK(top.scale == 0x1p127);
        CHECK(top.growth_tracker == 0);
    }
    for (const char* name : {"torch-sharded-cpu", "megatron", "keras3"})
        CHECK(after(options_of(name, 65536, 1), 112, false).scale == infinity);
    CHECK(after(options_of("apex", 65536, 1), 300, false).scale == 0x1p24);
    CHECK(after(options_of("deepspeed", 65536, 1), 300, false).scale == 0x1p316);
    CHECK(after(options_of("deepspeed-fused", 65536, 1), 1009, false).scale == infinity);
    // forever
    CHECK(update_scale(loss_scaler("keras3").options, {.scale = infinity}, true).state.scale == infinity);
}

TEST_CASE("a growth tracker beyond the interval: stuck, at once, wrapped") {
    const auto steps_to_growth = [](const char* name) {
        const LossScalerOptions options = options_of(name, 1024, 3);
        LossScalerState state = initial_state(options);
        state.growth_tracker = 7;
        for (int i = 1; i <= 1000; ++i) {
            state = update_scale(options, state, false).state;
            if (state.scale != 1024) return i;
        }
        return 0;
    };
    for (const char* name : {"torch", "apex", "apex-hysteresis", "megatron", "keras3"})
        CHECK(steps_to_growth(name) == 0);
    CHECK(steps_to_growth("keras2") == 1);
    CHECK(steps_to_growth("jmp") == 2);
    CHECK(steps_to_growth("deepspeed") == 2);
    CHECK(steps_to_growth("deepspeed-fused") == 3);
}

TEST_CASE("unscaling: the inverse is rounded once from FP64, or the quotient is") {
    const LossScalerOptions &torch = loss_scaler("torch").options, &keras = loss_scaler("keras3").options;
    CHECK(unscale(torch, 65536, 3.0F) == 3.0F / 65536);
    CHECK(unscale(torch, 3, 5.0F) == 5.0F * (1.0F / 3.0F));
    CHECK(unscale(keras, 3, 5.0F) == 5.0F / 3.0F);
    CHECK(unscale(torch, 3, 5.0F) != unscale(keras, 3, 5.0F));
    CHECK(unscale(loss_scaler("apex").options, 0x1p-140, 0x1p-120F) == infinity); // an FP64 scale, an FP32 inverse
}

TEST_CASE("defaults, as the frameworks document them") {
    const auto row = [](const char* name) { return loss_scaler(name).options; };
    for (const char* name : {"torch", "torch-sharded", "torch-sharded-cpu", "apex", "apex-hysteresis"})
        CHECK((row(name).init_scale == 0x1p16 && row(name).growth_interval == 2000));
    for (const char* name : {"deepspeed-bare", "deepspeed-fused", "megatron"})
        CHECK((row(name).init_scale == 0x1p32 && row(name).growth_interval == 1000 && row(name).min_scale == 1));
    CHECK((row("deepspeed").init_scale == 0x1p16 && row("deepspeed").hysteresis == 2));
    CHECK((row("deepspeed-bare").hysteresis == 1 && row("megatron").hysteresis == 2));
    for (const char* name : {"keras3", "keras2", "jmp"})
        CHECK((row(name).init_scale == 0x1p15 && row(name).growth_interval == 2000));
    CHECK(LossScalerOptions{.fp16_gradients = false} == row("torch"));
    for (const LossScalerRow& r : loss_scalers) {
        CHECK((r.options.growth_factor == 2 && r.options.backoff_factor == 0.5));
        CHECK_FALSE(r.source.empty());
        CHECK_NOTHROW(check(r.options));
    }
    CHECK_THROWS_WITH_AS(loss_scaler("nvidia"), doctest::Contains("torch, torch-sharded"), std::invalid_argument);
}

TEST_CASE("options outside their ranges") {
    const auto refused = [](const auto& change) {
        LossScalerOptions options;
        change(options);
        CHECK_THROWS_WITH_AS(initial_state(options), doctest::Contains("[loss_scaler] "), std::invalid_argument);
    };
    for (const double init : {0.0, -1.0, infinity, std::nan(""), 1e39, 1e-46})
        refused([&](auto& o) { o.init_scale = init; });
    for (const double growth : {1.0, 0.5, infinity, std::nan("")}) refused([&](auto& o) { o.growth_factor = growth; });
    for (const double backoff : {0.0, 1.0, std::nan("")}) refused([&](auto& o) { o.backoff_factor = backoff; });
    refused([](auto& o) { o.growth_interval = 0; });
    refused([](auto& o) { o.hysteresis = -1; });
    refused([](auto& o) { o.min_scale = -1; });
    refused([](auto& o) { o.min_scale = 4, o.max_scale = 2; });
    LossScalerOptions wide{.init_scale = 1e39, .arithmetic = ScaleArithmetic::fp64};
    CHECK(initial_state(wide).scale == 1e39);
    CHECK(initial_state({.init_scale = 0.1}).scale == 0.1F);
}

TEST_CASE("states as JSON") {
    for (const LossScalerState& state : {LossScalerState{65536, 3, 2},
                                         LossScalerState{0.1F, 0, -7},
                                         {0x1p-149, 1999, 0},
                                         {0x1p-1074, 0, 0},
                                         {0.1, 1, 1},
                                         {0, 0, 0},
                                         {infinity, 5, 1}}) {
        const nlohmann::json json = state;
        CHECK(nlohmann::json::parse(json.dump()).get<LossScalerState>() == state);
    }
    CHECK(nlohmann::json(LossScalerState{65536, 3, 2}).dump() ==
          R"({"growth_tracker":3,"hysteresis_tracker":2,"scale":65536.0})");
    CHECK(nlohmann::json(LossScalerState{infinity, 0, 0})["scale"].is_null());
    for (const char* bad : {"3", "{}", R"({"scale":1})", R"({"scale":-1,"growth_tracker":0,"hysteresis_tracker":0})",
                            R"({"scale":"1","growth_tracker":0,"hysteresis_tracker":0})",
                            R"({"scale":1,"growth_tracker":0.5,"hysteresis_tracker":0})",
                            R"({"scale":1,"growth_tracker":0,"hysteresis_tracker":null})",
                            R"({"scale":1,"growth_tracker":18446744073709551615,"hysteresis_tracker":0})"})
        CHECK_THROWS_WITH_AS(nlohmann::json::parse(bad).get<LossScalerState>(),
                             doctest::Contains("[loss_scaler] state"), std::invalid_argument);
}

namespace {

template <class T, std::size_t N>
T pick(std::mt19937_64& random, const std::array<T, N>& from) {
    return from[random() % N];
}

/// Random settings that the framework accepts, often its defaults.
Knobs random_knobs(const LossScalerRow& row, std::mt19937_64& random) {
    const LossScalerOptions& o = row.options;
    Knobs k{.init = o.init_scale, .min = o.min_scale, .max = o.max_scale, .hysteresis = o.hysteresis};
    k.interval = static_cast<std::int64_t>(1 + random() % 5);
    if (random() % 2 == 0) k.init = pick(random, std::array{1.0, 3.7, 65504.0, 0x1p-120, 0x1p-140, 0x1p120, 1e38});
    if (random() % 4 == 0) k.clean_steps = static_cast<std::int64_t>(random() % 9);
    if (k.min != 0 && random() % 2 == 0) k.min = pick(random, std::array{0.1, 4.0, 100.0, 0x1p-149});
    if (row.name == "apex" && random() % 2 == 0) k.min = pick(random, std::array{0.1, 128.0});
    if (k.hysteresis != 0) k.hysteresis = static_cast<std::int64_t>(1 + random() % 4);
    k.consecutive = row.name.starts_with("deepspeed") && random() % 2 == 0;
    const bool twos_only = row.name == "apex" || row.name == "keras3";
    if (!twos_only && random() % 2 == 0) {
        k.growth = pick(random, std::array{1.1, 1.5, 2.3, 3.0, 1000.0});
        k.backoff = pick(random, std::array{0.3, 0.7, 0.9, 0.001});
    }
    return k;
}

} // namespace

TEST_CASE("10,000 random sequences against each framework's second formula") {
    for (const LossScalerRow& row : loss_scalers) {
        REQUIRE_MESSAGE(twin(row.name, {}) != nullptr, "loss_scaler_twins.h lacks a second formula for " << row.name);
        prove(fmt::format("loss scaler {}: 64 steps of random found_inf", row.name), 10'000,
              [&](std::uint64_t i, Tally& tally) {
                  std::mt19937_64 random(i * 977 + 5);
                  const Knobs k = random_knobs(row, random);
                  LossScalerOptions options = options_of(row.name, k.init, k.interval);
                  options.growth_factor = k.growth;
                  options.backoff_factor = k.backoff;
                  options.min_scale = k.min;
                  options.hysteresis = k.hysteresis;
                  if (k.consecutive) options.hysteresis_refill = HysteresisRefill::each_clean_step;
                  LossScalerState state = initial_state(options);
                  state.growth_tracker = k.clean_steps;
                  const auto other = twin(row.name, k);
                  const std::uint64_t rate = pick(random, std::array<std::uint64_t, 5>{2, 10, 30, 60, 95});
                  std::string past;
                  for (int step = 0; step < 64; ++step) {
                      const bool found_inf = random() % 100 < rate;
                      past += "01"[found_inf];
                      const LossScalerUpdate update = update_scale(options, state, found_inf);
                      const Decision decision = other->update(found_inf);
                      const LossScalerState want{other->scale(), other->counter(), other->hysteresis()};
                      const bool same =
                          update.state == want && static_cast<int>(update.verdict) == static_cast<int>(decision);
                      tally.expect(same, true, [&] {
                          return fmt::format("sequence {} {}: {} but {}", i, past, nlohmann::json(update.state).dump(),
                                             nlohmann::json(want).dump());
                      });
                      if (decision == Decision::abort) break;
                      state = update.state;
                  }
              });
    }
}

// Departures from FP32: each of the four kinds is provoked.
#include <ampscope/sim/train/experiment.h>

#include <doctest/doctest.h>

using namespace amp;

namespace {

/// The departures of a small GPT's run from an FP32 run beside it.
DepartureWatch departures(const char* name, double loss_weight, double init_scale, std::int64_t steps,
                          double bound = 0.1) {
    std::vector<TrainOptions> runs;
    for (const char* run : {"fp32", name}) {
        TrainOptions o;
        o.precision = precision(run);
        if (LossScalerOptions& scaler = o.precision.loss_scaler.options; scaler.scaling != LossScaling::off)
            scaler.init_scale = init_scale;
        o.optimizer = optimizer("adamw").options;
        o.model.width = 16;
        o.model.depth = 1;
        o.batch = 16;
        o.loss_weight = loss_weight;
        runs.push_back(o);
    }
    const Dataset data = modular_data(13);
    Experiment experiment(runs, data, {.steps = steps, .departure_bound = bound}, {});
    while (!experiment.finished()) experiment.step();
    return *experiment.runs()[1].departures;
}

} // namespace

TEST_CASE("a run that does not leave FP32 has no departures") {
    const DepartureWatch watch = departures("amp-fp16", 1, 65536, 3);
    for (std::size_t kind = 0; kind < departure_names.size(); ++kind)
        CHECK(!watch.first(static_cast<DepartureKind>(kind)));
}

TEST_CASE("the first error beyond the bound is the first cast of the forward pass, if the bound is small enough") {
    const auto first = departures("amp-bf16", 1, 1, 1, 1e-4).first(DepartureKind::error);
    REQUIRE(first);
    CHECK(first->step == 0);
    CHECK(first->tensor == "h.0.attn.q.linear");
    CHECK(first->op == "matmul");
    CHECK(first->error > 1e-3); // in BF16, whose last place is 2^-8
    CHECK(first->error < 8e-3);
}

TEST_CASE("a loss scale too large: the first gradient that overflows, infinite before NaN") {
    const DepartureWatch watch = departures("amp-fp16", 1, 0x1p40, 1);
    const auto &infinite = watch.first(DepartureKind::infinite), &nan = watch.first(DepartureKind::nan);
    REQUIRE(infinite);
    CHECK(infinite->step == 0);
    CHECK(infinite->tensor == "head.linear.grad");
    REQUIRE(nan); // from inf - inf in a product of gradients
    CHECK(nan->step == 0);
}

TEST_CASE("gradients too small: the first that is all zero") {
    const auto zero = departures("amp-fp16,scaler=none", 1e-9, 1, 1).first(DepartureKind::zero_gradient);
    REQUIRE(zero);
    CHECK(zero->step == 0);
    CHECK(zero->tensor == "head.linear.grad");
}

TEST_CASE("weights that an update breaks are named with that step") {
    for (const std::int64_t steps : {1, 3}) { // by that of the next step, or after the last
        const auto nan = departures("pure-fp16", 1, 1, steps).first(DepartureKind::nan);
        REQUIRE(nan);
        CHECK(nan->step == 0);
        CHECK(nan->tensor == "wte.weight");
        CHECK(nan->op == "update");
    }
}

// Results known in the field, reproduced by the engine. Those about optimizers and loss scalers alone are in
// test_optimizer and test_loss_scaler.
#include <ampscope/sim/backend/cpu/cpu.h>
#include <ampscope/sim/train/experiment.h>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>

using namespace amp;

namespace {

/// The sum of so many ones, with every partial sum rounded by the accumulator.
float sum_of_ones(const char* name, std::int64_t count) {
    Precision p;
    p.accumulators = {accumulator(name)};
    Program program;
    Graph g(program, p);
    const TensorId x = g.input("x", {count}), out = op::sum(g, x);
    Cpu cpu(program, 1);
    std::ranges::fill(cpu[x], 1.0F);
    replay(cpu, program.forward);
    return cpu[out][0];
}

/// The same as a matrix product with a column of ones.
float product_of_ones(const char* name, std::int64_t count) {
    Precision p;
    p.accumulators = {accumulator(name)};
    Program program;
    Graph g(program, p);
    const TensorId a = g.input("a", {1, count}), b = g.input("b", {1, count}), out = op::matmul(g, a, b, true);
    Cpu cpu(program, 1);
    std::ranges::fill(cpu[a], 1.0F);
    std::ranges::fill(cpu[b], 1.0F);
    replay(cpu, program.forward);
    return cpu[out][0];
}

TrainOptions train_options(const char* name, std::uint64_t seed) {
    TrainOptions o;
    o.precision = precision(name);
    o.optimizer = optimizer("adamw").options;
    o.batch = 64;
    o.seed = seed;
    return o;
}

/// Final losses of a small CNN's training, by precision, for one seed.
std::vector<double> final_losses(std::uint64_t seed) {
    std::vector<TrainOptions> runs;
    for (const char* name : {"fp32", "amp-fp16", "amp-bf16", "amp-fp16,scaler=none"}) {
        TrainOptions o = train_options(name, seed);
        o.model = model("cnn").defaults;
        o.model.width = 8;
        o.optimizer.learning_rate = 0.005;
        o.loss_weight = 3e-5; // gradients as small as in a batch of two million
        runs.push_back(o);
    }
    const Dataset data = digits_data();
    Experiment experiment(runs, data, {.steps = 120, .statistics_every = 0}, {});
    while (!experiment.finished()) experiment.step();
    std::vector<double> losses;
    for (const Run& run : experiment.runs()) losses.push_back(run.final_loss());
    return losses;
}

} // namespace

TEST_CASE("sums of ones stop where the next one is half a last place") {
    for (const auto& sums : {sum_of_ones, product_of_ones}) {
        CHECK(sums("fp16", 5000) == 2048);
        CHECK(sums("bf16", 5000) == 256);
        CHECK(sums("e4m3", 5000) == 16);
        CHECK(sums("e5m2", 5000) == 8);
        CHECK(sums("fp32", 5000) == 5000);
    }
}

TEST_CASE("small gradients: FP16 alone loses, with a loss scale it is FP32 within seed noise, and so is BF16") {
    std::vector<std::vector<double>> by_seed;
    double mean = 0, square = 0;
    for (std::uint64_t seed = 0; seed < 5; ++seed) {
        by_seed.push_back(final_losses(seed));
        mean += by_seed.back()[0] / 5;
        square += by_seed.back()[0] * by_seed.back()[0] / 5;
    }
    const double deviation = std::sqrt(square - mean * mean);
    for (const std::vector<double>& losses : by_seed) {
        CAPTURE(losses[0]);
        CHECK(std::abs(losses[1] - losses[0]) < deviation / 5); // 0.041 is FP32's deviation between seeds
        CHECK(std::abs(losses[2] - losses[0]) < deviation / 5);
        CHECK(losses[3] > 1.9 * losses[0]);
    }
}

TEST_CASE("model.half() with Adam's default eps: NaN in the second step") {
    const Dataset data = modular_data(13);
    TrainOptions o = train_options("pure-fp16", 0);
    o.model.width = 16;
    Trainer trainer(o, data, 1);
    CHECK(std::isfinite(trainer.step().loss));
    CHECK(std::isnan(trainer.step().loss)); // 0 / 0: a row of the embedding has no gradient
}

TEST_CASE("one step of replicas or micro-batches is one step of their batches together") {
    const Dataset data = digits_data();
    std::vector<double> losses, weights;
    for (const auto& [batch, micro_batches, replicas] : {std::array{64, 1, 1}, {16, 4, 1}, {16, 1, 4}, {16, 2, 2}}) {
        TrainOptions o = train_options("fp32", 5);
        o.model = model("mlp").defaults;
        o.batch = batch;
        o.micro_batches = micro_batches;
        o.replicas = replicas;
        Trainer trainer(o, data, 1);
        for (int i = 0; i < 5; ++i) trainer.step();
        losses.push_back(trainer.step().loss);
        weights.push_back(trainer.backend()[trainer.training().parameters[0].weight][0]);
    }
    for (std::size_t i = 1; i < losses.size(); ++i) {
        CHECK(losses[i] == doctest::Approx(losses[0]).epsilon(1e-5));
        CHECK(weights[i] == doctest::Approx(weights[0]).epsilon(1e-4));
    }
}

TEST_CASE("dropout drops its share, scales the rest, and passes everything outside training") {
    Program program;
    Graph g(program, {});
    const TensorId x = g.input("x", {100000}), out = op::dropout(g, x, 0.3);
    Cpu cpu(program, 1);
    std::ranges::fill(cpu[x], 1.0F);
    const auto dropped = [&] {
        replay(cpu, program.forward);
        for (const float y : cpu[out]) REQUIRE((y == 0 || y == static_cast<float>(1 / (1 - 0.3))));
        return std::vector<float>(cpu[out].begin(), cpu[out].end());
    };
    const std::vector<float> first = dropped(), again = dropped();
    CHECK(first == again); // random words depend on the step, not on the call
    CHECK(std::ranges::count(first, 0.0F) == doctest::Approx(30000).epsilon(5 * 0.0048)); // five deviations
    cpu.context.step = 1;
    CHECK(dropped() != first);
    cpu.context.training = false;
    replay(cpu, program.forward);
    CHECK(std::ranges::all_of(cpu[out], [](float y) { return y == 1; }));
}

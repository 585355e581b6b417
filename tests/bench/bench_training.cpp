// A training step in emulated precision as a ratio to the FP32 step of the same network, in the same process.
//
//     cmake -B build/bench -DAMPSCOPE_BENCHMARKS=ON -DCMAKE_BUILD_TYPE=Release
//     cmake --build build/bench --target bench_training && build/bench/bin/bench_training
//
// Two threads must first give the same bits as one; for a precision where they do not, an error is printed and no
// figure.
#include "bench.h"

#include <ampscope/sim/train/configuration.h>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>

using namespace amp;

namespace {

/// Tokens of a made-up language: only the amount of work matters.
Dataset tokens(std::int64_t context, std::int64_t vocabulary) {
    return {.name = "tokens",
            .input = {context},
            .target = {context},
            .vocabulary = vocabulary,
            .classes = vocabulary,
            .training = 1 << 20,
            .validation = 64,
            .read = [=](std::int64_t i, float* input, float* target) {
                for (std::int64_t t = 0; t < context; ++t) {
                    input[t] = static_cast<float>((i + t * t) % vocabulary);
                    target[t] = static_cast<float>((i + t * t + 1) % vocabulary);
                }
            }};
}

struct Case {
    const char* name;
    const char* model;
    std::int64_t width, depth, batch;
    Dataset data;
};

TrainOptions options_of(const Case& network, const char* name) {
    TrainOptions o;
    o.model = model(network.model).defaults;
    o.model.width = network.width;
    o.model.depth = network.depth;
    o.precision = precision(name);
    o.optimizer = optimizer("adamw").options;
    o.batch = network.batch;
    return o;
}

std::string bits_after_two_steps(const TrainOptions& options, const Dataset& data, int threads) {
    Trainer trainer(options, data, threads);
    trainer.step();
    trainer.step();
    return fingerprint_of(trainer);
}

double step_seconds(Trainer& trainer) {
    const auto start = std::chrono::steady_clock::now();
    trainer.step();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void run(benchmark::State& state, const Case& network, const char* name, int threads) {
    const TrainOptions emulated = options_of(network, name);
    if (bits_after_two_steps(emulated, network.data, 1) != bits_after_two_steps(emulated, network.data, 2))
        return state.SkipWithError("bits depend on the number of threads: not timed");
    Trainer ours(emulated, network.data, threads), plain(options_of(network, "fp32"), network.data, threads);
    double best = 1e9, best_plain = 1e9;
    for ([[maybe_unused]] auto _ : state) {
        double t = 1e9;
        for (int i = 0; i < 4; ++i) { // in turns, so that both meet the same load of the machine
            best_plain = std::min(best_plain, step_seconds(plain));
            t = std::min(t, step_seconds(ours));
        }
        best = std::min(best, t);
        state.SetIterationTime(t);
    }
    state.counters["ms_a_step"] = best * 1e3;
    state.counters["of_FP32_step"] = best / best_plain;
}

} // namespace

int main(int argc, char** argv) {
    const Case networks[] = {{"gpt_64", "gpt", 64, 2, 64, modular_data(31)},
                             {"gpt_128", "gpt", 128, 2, 8, tokens(64, 64)},
                             {"gpt_256", "gpt", 256, 4, 4, tokens(128, 256)},
                             {"cnn_16", "cnn", 16, 2, 64, digits_data()}};
    for (const int threads : {1, 2})
        for (const Case& network : networks)
            for (const char* name : {"amp-fp16", "amp-bf16", "master-fp16", "pure-bf16", "tf32"})
                bench::add(fmt::format("{}/{}/threads:{}", network.name, name, threads),
                           [=](benchmark::State& s) { run(s, network, name, threads); });
    bench::run(argc, argv, "of_FP32_step: to the step of the same network in FP32");
}

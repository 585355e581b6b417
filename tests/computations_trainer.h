// Computations of the trainer, and of the products and conversions that it uses.
#pragma once

#include "computations.h"

#include <ampscope/sim/backend/cpu/detail/accumulate.h>
#include <ampscope/sim/base/batch.h>
#include <ampscope/sim/train/experiment.h>

#include <array>

namespace amp::test {

inline void add_products(std::vector<Computation>& all) {
    using cpu::MatrixView;
    constexpr std::int64_t shapes[][3] = {{0, 3, 2}, {3, 0, 2},      {3, 2, 0},     {1, 1, 1},    {7, 5, 3},
                                          {8, 8, 8}, {127, 131, 61}, {521, 67, 97}, {67, 521, 97}};
    for (const auto& [m, n, k] : shapes)
        all.push_back({"product of " + std::to_string(m) + " x " + std::to_string(k) + " x " + std::to_string(n),
                       [m = m, n = n, k = k](int threads, Bits& results) {
                           const auto a = mixed_floats(static_cast<std::size_t>(m * k), false),
                                      b = mixed_floats(static_cast<std::size_t>(k * n), false, 2);
                           std::vector<float> out(static_cast<std::size_t>(m * n), 1);
                           cpu::matmul({a.data(), k, 1}, {b.data(), 1, k}, out.data(), m, n, k, threads);
                           results << out;
                       },
                       m * n * k > 1'000'000});
    for (const char* name : {"hopper-wgmma-fp8", "volta-fp16-acc16", "ampere-bf16", "hopper-wgmma-fp8-promote128",
                             "exact", "kahan", "pairwise", "fp16", "fp32-promote16"})
        for (const auto& [m, n, k] : {std::array{37, 41, 384}, {1, 1, 1}, {1, 0, 1}})
            all.push_back(
                {std::string(name) + " product, m " + std::to_string(m) + ", n " + std::to_string(n),
                 [name, m = m, n = n, k = k](int threads, Bits& results) {
                     const Accumulator acc = accumulator(name);
                     const std::string operands(acc.operands.substr(0, acc.operands.find(' ')));
                     const FormatSpec f = format(operands.empty() ? "fp32" : operands);
                     const auto rounded = [&](int count, std::uint_fast32_t seed) {
                         auto x = mixed_floats(static_cast<std::size_t>(count), false, seed);
                         quantize(f, x, std::span(x));
                         return x;
                     };
                     const auto a = rounded(m * k, 1), b = rounded(k * n, 2);
                     std::vector<float> out(static_cast<std::size_t>(m * n), 1);
                     cpu::accumulate(acc, f, f, {a.data(), k, 1}, {b.data(), n, 1}, out.data(), m, n, k, threads);
                     results << out;
                 },
                 m > 1 && std::string(name) != "fp32-promote16"}); // its sums of 16 are small products
}

/// Arrays with no, one and many elements, more than the pieces that threads take.
inline void add_conversions(std::vector<Computation>& all) {
    for (const std::size_t n : {0ul, 1ul, 524289ul}) {
        const auto add = [&](const std::string& name, const auto& run) {
            all.push_back({name + " of " + std::to_string(n),
                           [n, run](int threads, Bits& results) { run(mixed_floats(n, true), threads, results); },
                           n > 1});
        };
        add("stochastic rounding", [](std::vector<float> x, int threads, Bits& results) {
            const BatchOptions options{.policy = {.rounding = Rounding::stochastic}, .key = {.seed = 7}};
            quantize(format("e5m2"), x, std::span(x), options, threads);
            results << x;
        });
        add("encoding and decoding", [](std::vector<float> x, int threads, Bits& results) {
            std::vector<std::uint16_t> codes(x.size());
            encode(format("fp16"), x, std::span(codes), {.policy = {.rounding = Rounding::up}}, threads);
            decode(format("bf16"), codes, std::span(x), NanRule::canonical, threads);
            results << codes << x;
        });
        add("rounding of doubles", [](const std::vector<float>& x, int threads, Bits& results) {
            std::vector<double> wide(x.size());
            for (std::size_t i = 0; i < x.size(); ++i)
                wide[i] = std::bit_cast<double>(std::uint64_t{std::bit_cast<std::uint32_t>(x[i])} << 32 | i);
            std::vector<float> out(x.size());
            quantize(format("bf16"), wide, std::span(out), {}, threads);
            results << out;
        });
        add("fused multiply-adds", [](std::vector<float> x, int threads, Bits& results) {
            apply(Operation::fma, format("fp16"), x, x, x, std::span(x), {}, threads);
            results << x;
        });
    }
}

/// Trainings, side by side, of models with odd sizes, whose larger tensors are shared by threads: losses, state,
/// recordings.
inline void add_trainings(std::vector<Computation>& all) {
    struct Case {
        const char* model;
        std::int64_t width, batch;
        std::vector<std::string> precisions;
        Dataset data;
        const char* attention = "plain";
    };
    static const Case cases[] = {
        {"mlp", 131, 257, {"pure-bf16-stochastic"}, regression_data(1)},
        {"cnn", 8, 67, {"fp32", "amp-fp16", "accumulate=fp16,master=bf16"}, digits_data()},
        {"gpt", 68, 127, {"amp-fp16"}, modular_data(31)},
        {"llama", 72, 127, {"amp-bf16"}, modular_data(31), "fused:2x1"},
        {"gpt", 20, 19, {"fp32", "amp-bf16", "fp8-delayed", "mxfp8", "nvfp4", "scaling=ms-amp"}, modular_data(7)}};
    for (const Case& c : cases)
        all.push_back({std::string("training of ") + c.model + ", width " + std::to_string(c.width),
                       [&c](int threads, Bits& results) {
                           std::vector<TrainOptions> runs;
                           for (const std::string& name : c.precisions) {
                               TrainOptions o{.precision = precision(name)};
                               o.model = model(c.model).defaults;
                               o.model.width = c.width;
                               o.model.depth = 1;
                               o.model.dropout = 0.1;
                               o.model.attention = c.attention;
                               o.batch = c.batch;
                               o.clip = 1;
                               o.replicas = 2;
                               runs.push_back(o);
                           }
                           Experiment experiment(runs, c.data, {.steps = 1, .threads = threads}, {});
                           while (!experiment.finished()) experiment.step();
                           for (Run& run : experiment.runs()) {
                               results << run.losses << run.gradient_error << experiment.distance(run)
                                       << run.trainer->evaluate().loss;
                               for (const TensorId id : run.trainer->state_tensors())
                                   results << run.trainer->backend().read(id);
                           }
                       },
                       true});
}

} // namespace amp::test

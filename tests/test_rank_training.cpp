// Training with one replica on each of several ranks, here threads: every tensor has the bits that a process with all
// replicas leaves, after every step.
#include <ampscope/sim/train/trainer.h>

#include "thread_ranks.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <bit>
#include <thread>

using namespace amp;
using namespace amp::test;

namespace {

TrainOptions asked(const std::string& precision_name, int replicas, const AllReduceOptions& all_reduce) {
    TrainOptions o;
    o.model.name = "mlp";
    o.model.width = 16;
    o.precision = precision(precision_name);
    o.batch = 4;
    o.replicas = replicas;
    o.micro_batches = 2;
    o.all_reduce = all_reduce;
    o.seed = 3;
    return o;
}

/// The bits of a trainer's state, and of its last step.
std::vector<std::uint32_t> bits_of(Trainer& trainer, const StepResult& result) {
    std::vector<std::uint32_t> bits;
    const auto add = [&](double x) {
        const auto b = std::bit_cast<std::uint64_t>(x);
        bits.push_back(static_cast<std::uint32_t>(b));
        bits.push_back(static_cast<std::uint32_t>(b >> 32));
    };
    for (const double x : {result.amax_activation, result.loss, result.scale, result.gradient_norm, result.amax_weight})
        add(x);
    for (const TensorId id : trainer.state_tensors())
        for (const float x : trainer.backend().read(id)) bits.push_back(std::bit_cast<std::uint32_t>(x));
    return bits;
}

std::vector<std::vector<std::uint32_t>> trained_alone(const TrainOptions& o, const Dataset& data, int steps) {
    Trainer trainer(o, data, 1);
    std::vector<std::vector<std::uint32_t>> all;
    for (int i = 0; i < steps; ++i) {
        const StepResult result = trainer.step();
        all.push_back(bits_of(trainer, result));
    }
    return all;
}

/// The same of every rank.
std::vector<std::vector<std::vector<std::uint32_t>>> trained_on_ranks(const TrainOptions& o, const Dataset& data,
                                                                      int steps) {
    Post post(o.replicas);
    std::vector<std::vector<std::vector<std::uint32_t>>> all(static_cast<std::size_t>(o.replicas));
    {
        std::vector<std::jthread> threads;
        for (int rank = 0; rank < o.replicas; ++rank)
            threads.emplace_back([&, rank] {
                ThreadRanks ranks(post, rank, o.replicas);
                RankGroup group(ranks);
                Trainer trainer(o, data, 1, group);
                for (int i = 0; i < steps; ++i) {
                    const StepResult result = trainer.step();
                    all[static_cast<std::size_t>(rank)].push_back(bits_of(trainer, result));
                }
            });
    }
    return all;
}

} // namespace

TEST_CASE("ranks leave the bits of one process: every algorithm, division and format") {
    const Dataset data = digits_data();
    std::uint64_t cases = 0, mismatches = 0;
    const auto compare = [&](const TrainOptions& o, const std::string& what) {
        constexpr int steps = 3;
        const auto want = trained_alone(o, data, steps);
        const auto got = trained_on_ranks(o, data, steps);
        for (std::size_t rank = 0; rank < got.size(); ++rank)
            for (std::size_t step = 0; step < want.size(); ++step) {
                // The largest gradients of activations are those of the replica that ran last, on rank 0.
                const std::ptrdiff_t from = rank == 0 ? 0 : 2;
                cases += want[step].size();
                const bool equal = std::equal(want[step].begin() + from, want[step].end(),
                                              got[rank][step].begin() + from, got[rank][step].end());
                mismatches += equal ? 0 : 1;
                CHECK_MESSAGE(equal, what, ", rank ", rank, ", step ", step);
            }
    };
    for (std::size_t row = 0; row < all_reduce_rows.size(); ++row)
        for (const int replicas : {2, 3, 4, 8})
            for (const char* transport : {"fp32", "bf16", "e4m3", "mxfp8"}) {
                const Payload payload = payload_of(transport);
                const auto order = static_cast<AllReduceOrder>(row);
                if (payload.blocks != nullptr && !row_of(order).takes_blocks) continue;
                AllReduceOptions all{.order = order, .transport = payload.format, .blocks = payload.blocks};
                compare(asked("fp32", replicas, all), fmt::format("{} {} {}", row_of(order).name, replicas, transport));
            }
    for (const AllReduceDivision division : {AllReduceDivision::after, AllReduceDivision::nccl_avg})
        compare(asked("fp32", 3, {.division = division, .transport = format("bf16")}), "division");
    for (const char* name :
         {"amp-fp16", "amp-bf16", "master-fp16", "pure-bf16", "pure-bf16-stochastic", "tf32", "fp8-delayed",
          "fp8-delayed,scaling-reduce=off", "fp8-current", "mxfp8", "nvfp4", "ms-amp"})
        compare(asked(name, 3, {}), name);
    AllReduceOptions scaled{.transport = format("e4m3"), .scaled = true};
    compare(asked("ms-amp", 4, scaled), "ms-amp, scaled");
    fmt::print("proof: training on ranks against one process: {} cases, {} mismatches\n", cases, mismatches);
}

// Training with one replica on each of several ranks, here threads: every tensor has the bits that a process with all
// replicas leaves, after every step, and so have its counts.
#include <ampscope/sim/train/trainer.h>

#include "sanitized.h"
#include "thread_ranks.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <bit>
#include <thread>

using namespace amp;
using namespace amp::test;

namespace {

TrainOptions asked(std::string_view precision_name, int replicas, const AllReduceOptions& all_reduce = {}) {
    TrainOptions o;
    o.model.name = "mlp";
    o.model.width = 16;
    o.model.dropout = 0.1;
    o.precision = precision(precision_name);
    o.batch = 4;
    o.replicas = replicas;
    o.micro_batches = 2;
    o.all_reduce = all_reduce;
    o.seed = 3;
    return o;
}

/// The bits of a trainer after a step: first the part of the result that rank 0 alone has, then what all ranks have.
struct Bits {
    std::vector<std::uint64_t> of_rank_0, of_all;
    bool operator==(const Bits&) const = default;
};

/// A step whose casts are counted.
Bits bits_of_step(Trainer& trainer) {
    Backend& backend = trainer.backend();
    backend.counts_roundings = backend.counts_scalings = true;
    std::ranges::fill(backend.roundings(), RoundingCounts{});
    std::ranges::fill(backend.scalings(), ScalingCounts{});
    const StepResult result = trainer.step();
    Bits bits;
    bits.of_rank_0 = {std::bit_cast<std::uint64_t>(result.amax_activation)};
    for (const double x : {result.loss, result.scale, result.gradient_norm, result.amax_weight})
        bits.of_all.push_back(std::bit_cast<std::uint64_t>(x));
    bits.of_all.push_back(result.found_inf);
    for (const TensorId id : trainer.state_tensors())
        for (const float x : backend.read(id)) bits.of_all.push_back(std::bit_cast<std::uint32_t>(x));
    for (const RoundingCounts& c : backend.roundings())
        for (const std::int64_t n : {c.elements, c.nonzero, c.underflow, c.overflow})
            bits.of_all.push_back(static_cast<std::uint64_t>(n));
    for (const ScalingCounts& c : backend.scalings()) {
        for (const float x : {c.amax, c.least_scale, c.largest_scale})
            bits.of_all.push_back(std::bit_cast<std::uint32_t>(x));
        for (const std::int64_t n : {c.elements, c.nonzero, c.underflow, c.saturated})
            bits.of_all.push_back(static_cast<std::uint64_t>(n));
    }
    return bits;
}

constexpr int steps = 3;
using Steps = std::vector<Bits>;

Steps train(Trainer& trainer) {
    Steps all;
    for (int i = 0; i < steps; ++i) all.push_back(bits_of_step(trainer));
    return all;
}

/// The steps of every rank.
std::vector<Steps> train_on_ranks(const TrainOptions& o, const Dataset& data) {
    Post post(o.replicas);
    std::vector<Steps> all(static_cast<std::size_t>(o.replicas));
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < o.replicas; ++rank)
        threads.emplace_back([&, rank] {
            ThreadRanks ranks(post, rank, o.replicas);
            RankGroup group(ranks);
            Trainer trainer(o, data, 1, group);
            all[static_cast<std::size_t>(rank)] = train(trainer);
        });
    threads.clear();
    return all;
}

struct Comparison {
    std::size_t runs = 0;
    std::uint64_t numbers = 0, mismatches = 0, skipped = 0;

    void operator()(const TrainOptions& o, const Dataset& data, const std::string& what) {
        if (!is_due(runs++)) return;
        Trainer trainer(o, data, 1);
        const Steps want = train(trainer);
        const std::vector<Steps> got = train_on_ranks(o, data);
        for (std::size_t rank = 0; rank < got.size(); ++rank)
            for (std::size_t step = 0; step < want.size(); ++step) {
                const bool equal = got[rank][step].of_all == want[step].of_all &&
                                   (rank > 0 || got[rank][step].of_rank_0 == want[step].of_rank_0);
                numbers += want[step].of_all.size();
                mismatches += equal ? 0 : 1;
                skipped += want[step].of_all[4];
                CHECK_MESSAGE(equal, what, ", rank ", rank, ", step ", step);
            }
    }
};

} // namespace

TEST_CASE("ranks leave the bits of one process") {
    const Dataset data = digits_data();
    Comparison compare;
    for (const PrecisionRow& row : precisions())
        for (const int replicas : {2, 3}) compare(asked(row.name, replicas), data, std::string(row.name));
    for (std::size_t order = 0; order < all_reduce_rows.size(); ++order)
        for (const int replicas : {2, 3, 4, 8})
            for (const char* transport : {"bf16", "mxfp8"}) {
                const Payload payload = payload_of(transport);
                const AllReduceRow& row = all_reduce_rows[order];
                if (payload.blocks != nullptr && !row.takes_blocks) continue;
                TrainOptions o = asked("pure-bf16", replicas,
                                       {.order = static_cast<AllReduceOrder>(order),
                                        .transport = payload.format,
                                        .blocks = payload.blocks});
                compare(o, data, fmt::format("{}, {}, {}", row.name, transport, replicas));
                const bool uneven = o.all_reduce.order == AllReduceOrder::halving_doubling && replicas == 3;
                if (!row.scatters || uneven) continue;
                o.precision = precision("fp32");
                for (std::size_t sharding = 1; sharding < shardings.size(); ++sharding) {
                    o.shard = {static_cast<Sharding>(sharding), payload_of(transport)};
                    compare(o, data, fmt::format("{}, {}", shardings[sharding].name, row.name));
                }
            }
    for (const AllReduceDivision division : {AllReduceDivision::after, AllReduceDivision::nccl_avg})
        compare(asked("fp32", 3, {.division = division, .transport = format("bf16")}), data, "division");
    for (const char* model :
         {"gpt", "llama", "cnn", "resnet", "linear"}) { // views, tied weights, and what is not in blocks
        TrainOptions o = asked("amp-bf16", 3, {.transport = format("bf16")});
        o.model = amp::model(model).defaults;
        o.model.width = 8;
        compare(o, amp::model(model).reads_tokens ? modular_data(7) : data, model);
        if (o.model.name != "resnet") continue; // scales are handed on in the first step, statistics in each
        o.precision = precision("ms-amp");
        compare(o, data, "resnet in ms-amp");
    }
    compare(asked("fp32,master=e4m3,weights=e4m3", 3), data, "means that rounding loses");
    for (const char* precision : {"ms-amp", "fp8-delayed", "fp8-delayed,scaling-reduce=off"})
        for (const int replicas : {2, 3, 4, 8})
            compare(asked(precision, replicas, {.transport = format("e4m3"), .scaled = true}), data,
                    std::string(precision) + ", scaled");
    fmt::print("proof: training on ranks against one process: {} numbers, {} steps differ\n", compare.numbers,
               compare.mismatches);
}

TEST_CASE("ranks agree on what is infinite, though one alone has it, and go on with the same scale") {
    const Dataset data = digits_data();
    Comparison compare;
    TrainOptions o = asked("amp-fp16", 4);
    o.precision.loss_scaler.options.init_scale = 0x1p18;
    o.micro_batches = 1;
    compare(o, data, "amp-fp16 from 2^18");
    CHECK(compare.skipped > 0);
    CHECK(compare.skipped < 4 * steps);
}

TEST_CASE("a trainer with replicas on ranks expects as many replicas") {
    const Dataset data = digits_data();
    Post post(2);
    ThreadRanks ranks(post, 0, 2);
    RankGroup group(ranks);
    CHECK_THROWS_WITH_AS(Trainer(asked("fp32", 3), data, 1, group), "[train] 3 replicas on 2 ranks: expected as many",
                         std::invalid_argument);
}

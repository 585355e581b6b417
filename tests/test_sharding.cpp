// Sharded optimizers: what they leave as it was, what a cast of gathered weights changes, and the memory they need.
#include "oracle_collective.h"
#include "sweep.h"

#include <ampscope/formats/environment.h>
#include <ampscope/sim/train/data/dataset.h>
#include <ampscope/sim/train/detail/run_tensors.h>
#include <ampscope/sim/train/plan.h>
#include <ampscope/sim/train/trainer.h>

#include <doctest/doctest.h>

#include <set>
#include <span>
#include <utility>

using namespace amp;
using namespace amp::test;

namespace {

TrainOptions options(int replicas, Sharding sharding, const char* optimizer_name = "adamw") {
    TrainOptions o;
    o.model = {.name = "mlp", .width = 16, .depth = 2, .heads = 2};
    o.precision = precision("fp32");
    o.optimizer = optimizer(optimizer_name).options;
    o.optimizer.weight_decay = 0.1;
    o.batch = 8;
    o.replicas = replicas;
    o.clip = 0.5;
    o.shard.sharding = sharding;
    return o;
}

/// The tensors that decide how a training goes on, by name.
std::vector<float> state_of(const Trainer& trainer) {
    std::vector<float> all;
    for (const ParameterTensors& p : trainer.training().parameters)
        for (const TensorId id : {p.updated(), p.gradient, p.m, p.v})
            if (id) all.insert(all.end(), trainer.backend()[id].begin(), trainer.backend()[id].end());
    return all;
}

} // namespace

TEST_CASE("dividing the optimizer's state among replicas changes no bit") {
    const Dataset data = digits_data();
    Tally tally;
    for (const AllReduceOrder order :
         {AllReduceOrder::ring, AllReduceOrder::halving_doubling, AllReduceOrder::all_to_all, AllReduceOrder::exact})
        for (const char* transport : {"fp32", "bf16"})
            for (const char* optimizer_name : {"sgd", "adamw"})
                for (const int replicas : {1, 2, 4}) {
                    TrainOptions o = options(replicas, Sharding::none, optimizer_name);
                    o.all_reduce = {.order = order, .transport = format(transport)};
                    Trainer whole(o, data, 1);
                    for (int i = 0; i < 4; ++i) whole.step();
                    for (const Sharding sharding : {Sharding::zero1, Sharding::zero2, Sharding::fsdp})
                        for (const bool names_format : {false, true}) {
                            o.shard = {.sharding = sharding};
                            if (names_format) o.shard.gather = payload_of("fp32");
                            Trainer sharded(o, data, 1);
                            for (int i = 0; i < 4; ++i) sharded.step();
                            const std::vector<float> got = state_of(sharded), want = state_of(whole);
                            REQUIRE(got.size() == want.size());
                            for (std::size_t i = 0; i < got.size(); ++i)
                                tally.expect(got[i], want[i], [&] {
                                    return fmt::format("{} of {}, {} [{}]", row_of(order).name, replicas,
                                                       row_of(sharding).name, i);
                                });
                            for (const ParameterTensors& p : sharded.training().parameters)
                                CHECK(std::ranges::equal(sharded.backend()[p.weight], sharded.backend()[p.master]));
                        }
                }
    report("sharded optimizers in FP32", tally);
    CHECK(tally.mismatches == 0);
}

TEST_CASE("the network computes with gathered weights; their owners keep and update the master weights") {
    const FloatEnvironment environment;
    const Dataset data = digits_data();
    Tally tally;
    for (const char* gather : {"bf16", "e4m3", "mxfp8", "nvfp4", "fp8-tensor"}) {
        TrainOptions o = options(3, Sharding::zero1, "sgd");
        o.clip = 0;
        o.optimizer.weight_decay = 0;
        o.optimizer.learning_rate = 0x1p-4; // so that lr * gradient is exact
        o.shard.gather = payload_of(gather);
        Trainer trainer(o, data, 1);
        std::vector<std::vector<float>> masters;
        for (const ParameterTensors& p : trainer.training().parameters)
            masters.emplace_back(trainer.backend()[p.master].begin(), trainer.backend()[p.master].end());
        for (int step = 0; step < 4; ++step) {
            std::size_t changed = 0;
            for (std::size_t i = 0; i < masters.size(); ++i) {
                const ParameterTensors& p = trainer.training().parameters[i];
                std::vector<float> want = masters[i];
                const auto columns = static_cast<std::size_t>(trainer.backend().info(p.weight).shape.back());
                if (const BlockSpec* const blocks = o.shard.gather->blocks; blocks == nullptr)
                    for (float& x : want) x = Exactly{gather}.stored(x);
                else if (blocks->columns == 0 || blocks->rule == ScaleRule::nvfp4) {
                    if (want.size() != columns && blocks->columns != 0) continue; // the upper scale is the tensor's
                    cast_message(*blocks, want.data(), want.size());
                } else {
                    for (std::size_t at = 0; at < want.size(); at += columns)
                        cast_message(*blocks, want.data() + at, columns);
                }
                for (std::size_t e = 0; e < want.size(); ++e) {
                    tally.expect(trainer.backend()[p.weight][e], want[e],
                                 [&] { return fmt::format("{} gathered, step {}, [{}]", gather, step, e); });
                    changed += want[e] != masters[i][e];
                }
            }
            CHECK(changed > 0);
            trainer.step();
            for (std::size_t i = 0; i < masters.size(); ++i) {
                const ParameterTensors& p = trainer.training().parameters[i];
                for (std::size_t e = 0; e < masters[i].size(); ++e) {
                    const float g = trainer.backend()[p.gradient][e];
                    masters[i][e] = Exactly{}.sum(masters[i][e], -Exactly{}.product(g, 0x1p-4F));
                    tally.expect(trainer.backend()[p.master][e], masters[i][e],
                                 [&] { return fmt::format("{} master, step {}, [{}]", gather, step, e); });
                }
            }
        }
    }
    report("gathered weights", tally);
    CHECK(tally.mismatches == 0);
}

TEST_CASE("a run goes on from the master weights") {
    const Dataset data = digits_data();
    TrainOptions o = options(2, Sharding::fsdp);
    o.shard.gather = payload_of("bf16");
    Trainer first(o, data, 1), second(o, data, 1);
    for (int i = 0; i < 3; ++i) first.step();
    for (const TensorId id : first.state_tensors())
        std::ranges::copy(first.backend()[id], second.backend()[id].begin());
    second.restore(first.state());
    CHECK(first.step().loss == second.step().loss);
    CHECK(state_of(first) == state_of(second));
}

TEST_CASE("what is recorded of a weight is its master weight; a checkpoint has both") {
    const Dataset data = digits_data();
    TrainOptions o = options(2, Sharding::zero1);
    o.shard.gather = payload_of("bf16");
    const Trainer trainer(o, data, 1);
    const ParameterTensors& first = trainer.training().parameters[0];
    const auto of = [](const detail::NamedTensors& tensors, std::string_view name) {
        const auto found = std::ranges::find(tensors, name, &detail::NamedTensor::name);
        return found == tensors.end() ? TensorId{} : found->id;
    };
    CHECK(of(detail::recorded_state_of(trainer), "h.0.weight") == first.master);
    CHECK(!of(detail::recorded_state_of(trainer), "h.0.weight.master"));
    CHECK(of(detail::weights_of(trainer), "h.0.weight") == first.master);
    CHECK(of(detail::state_of(trainer), "h.0.weight") == first.weight);
    CHECK(of(detail::state_of(trainer), "h.0.weight.master") == first.master);
    const std::size_t parameters = trainer.training().parameters.size();
    CHECK(detail::recorded_state_of(trainer).size() == 3 * parameters); // and m and v
    CHECK(detail::state_of(trainer).size() == 4 * parameters);
}

TEST_CASE("bytes a replica keeps and sends") {
    const Dataset data = digits_data();
    // 64 x 16 + 16, 16 x 16 + 16, 16 x 10 + 10 parameters; of 10 biases the largest of four chunks has 3.
    constexpr double all = 64 * 16 + 16 + 16 * 16 + 16 + 160 + 10, share = all / 4 + 0.5;
    struct Row {
        Sharding sharding;
        const char *gather, *precision;
        double bytes;
    };
    for (const Row& row :
         {Row{Sharding::none, "", "fp32", 16 * all}, Row{Sharding::zero1, "", "fp32", 4 * all + 4 * all + 8 * share},
          Row{Sharding::zero2, "", "fp32", 4 * all + 12 * share}, Row{Sharding::fsdp, "", "fp32", 16 * share},
          Row{Sharding::zero1, "bf16", "fp32", 2 * all + 4 * share + 4 * all + 8 * share},
          Row{Sharding::zero2, "bf16", "fp32", 2 * all + 16 * share},
          Row{Sharding::fsdp, "bf16", "fp32", 16 * share}, // what is gathered for a use is not kept
          Row{Sharding::fsdp, "fp8-row", "fp32", 16 * share},
          Row{Sharding::zero2, "e4m3", "amp-bf16", all + 2 * all + 16 * share},
          Row{Sharding::zero2, "bf16", "amp-bf16", 2 * all + 16 * share}, // what is gathered needs no cast
          // a scale for each row of 64, 16, 16, and each bias: 2 * 16, 16, 10, 3
          Row{Sharding::zero2, "mxfp8", "fp32", all + 2 * 16 + 16 + 10 + 3 + 16 * share},
          Row{Sharding::zero2, "fp8-row", "fp32", all + 4 * (16 + 16 + 10 + 3) + 16 * share},
          Row{Sharding::zero2, "int8-affine-row", "fp32", all + (4 + 1) * (16 + 16 + 10 + 3) + 16 * share}}) {
        CAPTURE(row.gather);
        CAPTURE(row_of(row.sharding).name);
        TrainOptions o = options(4, row.sharding);
        o.precision = precision(row.precision);
        if (*row.gather != 0) o.shard.gather = payload_of(row.gather);
        const MemoryAccount memory = memory_of(build_training_program(o, data));
        CHECK(memory.bytes_per_parameter() * static_cast<double>(memory.parameters) == doctest::Approx(row.bytes));
    }
    // Gradients of micro-batches are added up whole.
    for (const auto& row :
         {std::pair{Sharding::zero2, 8 * all + 8 * share}, std::pair{Sharding::fsdp, 4 * all + 12 * share}}) {
        CAPTURE(row_of(row.first).name);
        TrainOptions o = options(4, row.first);
        o.micro_batches = 4;
        const MemoryAccount memory = memory_of(build_training_program(o, data));
        CHECK(memory.bytes_per_parameter() * static_cast<double>(memory.parameters) == doctest::Approx(row.second));
        CHECK(memory.bytes_with_computed_gradients() == doctest::Approx(memory.bytes_per_parameter()));
    }
}

TEST_CASE("bytes a replica sends in a step") {
    const Dataset data = digits_data();
    const auto sends = [&](const TrainOptions& o) {
        std::vector<std::string> all;
        for (const PlannedOp& op : plan_of(build_training_program(o, data)))
            if (!op.sends.empty()) all.push_back(op.output + ": " + op.sends);
        REQUIRE(all.size() == 12);
        return all;
    };
    TrainOptions o = options(4, Sharding::zero1);
    o.all_reduce.transport = format("bf16");
    o.shard.gather = payload_of("mxfp8");
    CHECK(sends(o)[0] == "h.0.weight.grad.mean: 1536 bytes a replica, in 3 messages"); // 3 chunks of 256, 2 bytes each
    // Weights of 16 x 64 are cast whole: a chunk is four rows, with the scales and zero points of their blocks. A chunk
    // of 10 x 16 is two and a half rows, and has elements of three. A bias is one row.
    struct Row {
        const char* gather;
        int first, bias, last;
    };
    for (const Row& row : {Row{"mxfp8", 256 + 8, 4 + 1, 40 + 3}, Row{"fp8-row", 256 + 4 * 4, 4 + 4, 40 + 3 * 4},
                           Row{"fp8-tensor", 256 + 4, 4 + 4, 40 + 4}, Row{"fp8-128x128", 256 + 4, 4 + 4, 40 + 4},
                           Row{"int8-affine-row", 256 + 4 * 5, 4 + 5, 40 + 3 * 5},
                           Row{"int4-affine-1x128", 128 + 18, 2 + 5, 20 + 14}, // 4.5 bytes a block, rounded up
                           Row{"nvfp4", 128 + 16 + 4, 2 + 1 + 4, 20 + 3 + 4}}) {
        CAPTURE(row.gather);
        o.shard.gather = payload_of(row.gather);
        const std::vector<std::string> all = sends(o);
        const auto line = [](const char* name, int bytes) {
            return fmt::format("{}.gathered: {} bytes a replica, in 3 messages", name, 3 * bytes);
        };
        CHECK(all[6] == line("h.0.weight", row.first));
        CHECK(all[7] == line("h.0.bias", row.bias));
        CHECK(all[10] == line("head.weight", row.last));
    }
    o.replicas = 16; // six of them have no chunk of the ten last biases
    o.shard.gather = payload_of("mxfp8");
    CHECK(sends(o)[11] == "head.bias.gathered: 20 bytes a replica, in 15 messages");
    o.replicas = 4;
    // FSDP gathers for forward and for backward of each micro-batch; others once a step.
    o.shard = {.sharding = Sharding::zero2};
    o.micro_batches = 4;
    CHECK(sends(o)[6] == "h.0.weight: 3072 bytes a replica, in 3 messages");
    o.shard.sharding = Sharding::fsdp;
    CHECK(sends(o)[0] == "h.0.weight.grad.mean: 1536 bytes a replica, in 3 messages");
    CHECK(sends(o)[6] == "h.0.weight: 24576 bytes a replica, in 24 messages");
    o.micro_batches = 1;
    CHECK(sends(o)[6] == "h.0.weight: 6144 bytes a replica, in 6 messages");
}

TEST_CASE("the blocks that hold a range of elements, by looking at each") {
    for (const std::int64_t rows : {1, 2, 5})
        for (const std::int64_t columns : {1, 3, 8})
            for (const std::int64_t height : {0, 1, 2, 4})
                for (const std::int64_t width : {0, 1, 3, 5}) {
                    const BlockGrid grid = BlockScaling{.rows = height, .columns = width}.grid(rows, columns);
                    for (std::int64_t begin = 0; begin <= rows * columns; ++begin) {
                        std::set<std::int64_t> blocks;
                        for (std::int64_t end = begin; end <= rows * columns; ++end) {
                            if (end > begin) blocks.insert(grid.of(end - 1));
                            CHECK(grid.with_elements(begin, end) == std::ssize(blocks));
                        }
                    }
                }
}

TEST_CASE("what sharding does not go with") {
    const Dataset data = digits_data();
    const auto refused = [&](const TrainOptions& o, const char* why) {
        CHECK_THROWS_WITH_AS(build_training_program(o, data), doctest::Contains(why), std::invalid_argument);
    };
    TrainOptions o = options(3, Sharding::zero1);
    o.all_reduce.order = AllReduceOrder::tree;
    refused(o, "tree leaves no chunks with the replicas; those that do: ring, halving-doubling, all-to-all, exact");
    o.all_reduce.order = AllReduceOrder::halving_doubling;
    refused(o, "of 3 replicas, no power of two");
    o.all_reduce = {.transport = format("e4m3"), .scaled = true};
    refused(o, "tensors whose elements share scales");
    o = options(3, Sharding::zero1);
    o.precision = precision("fp32,v=dynamic8:256");
    refused(o, "tensors whose elements share scales");
    o = options(3, Sharding::none);
    o.shard.gather = payload_of("bf16");
    refused(o, "is for sharded optimizers");
    o = options(3, Sharding::none);
    o.all_reduce = {.order = AllReduceOrder::doubling, .blocks = &block_format("mxfp8")};
    refused(o, "would end with different sums; those that take mxfp8: ring, tree");
    o.all_reduce = {.order = AllReduceOrder::exact, .blocks = &block_format("mxfp8")};
    refused(o, "a switch adds no blocks");
    for (const BlockSpec& blocks : block_formats) {
        CAPTURE(blocks.name);
        o.all_reduce = {.blocks = &blocks};
        if (takes_messages(blocks)) CHECK_NOTHROW(check(o.all_reduce));
        else refused(o, "a message is one row");
    }
    CHECK(takes_messages(block_format("nvfp4")));
    CHECK(takes_messages(block_format("fp8-tensor")));
    CHECK(!takes_messages(block_format("fp8-128x128")));
    CHECK(!takes_messages(block_format("int8-affine-row")));
    o.all_reduce = {.scaled = true, .blocks = &block_format("mxfp8")};
    refused(o, "has scales of its own");
    o.all_reduce = {.division = AllReduceDivision::nccl_avg, .scaled = true};
    refused(o, "has a factor of its own that divides: nccl-avg does not go with it");
    o.all_reduce.division = AllReduceDivision::after;
    refused(o, "has a factor of its own that divides: after does not go with it");
}

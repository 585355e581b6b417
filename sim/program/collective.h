// How replicas add up their gradients: each algorithm as a schedule of messages. The in-process op, the bytes that
// `--explain` counts and processes that really send read the same schedule.
#pragma once

#include <ampscope/formats/block.h>

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace amp {

/// The algorithm of an all-reduce: a row of all_reduce_rows.
enum class AllReduceOrder : std::uint8_t { ring, tree, halving_doubling, doubling, one_shot, all_to_all, exact };

/// How a replica adds up what it has and what it receives.
enum class ReduceSum : std::uint8_t {
    pairwise, ///< each message to what the replica has, rounded to the format of the all-reduce
    fp32,     ///< the numbers of all replicas at once, in FP32, in the order of ranks; the sum is rounded to the format
    exact     ///< the numbers of all replicas at once, exactly; the sum is rounded once. A sum of zero is +0
};

struct AllReduceRow {
    std::string_view name;
    ReduceSum sum;
    bool scatters;     ///< once all is added, each chunk lies with a replica of its own: what a sharded optimizer needs
    bool takes_blocks; ///< messages may be cast to blocks with scales
    bool in_switch;    ///< a switch adds and multicasts, so that a replica sends a chunk of the result once
    std::string_view meaning, source;
};

inline constexpr std::array all_reduce_rows = {
    AllReduceRow{"ring", ReduceSum::pairwise, true, true, false,
                 "chunk c of N is summed from replica c + 1 on, around the ring; then it is sent around",
                 "NCCL: src/device/all_reduce.h, runRing"},
    AllReduceRow{"tree", ReduceSum::pairwise, false, true, false,
                 "neighbours are added in pairs, then pairs of neighbours; an odd one out takes part in the next "
                 "round; then the sum goes back",
                 "MPICH, src/mpi/coll/reduce: reduce_intra_binomial.c, and its way back"},
    AllReduceRow{"halving-doubling", ReduceSum::pairwise, true, true, false,
                 "replicas whose ranks differ in one bit exchange halves, quarters ..., then gather them; of more than "
                 "2^k replicas the first are paired before",
                 "MPICH, src/mpi/coll/allreduce: allreduce_intra_reduce_scatter_allgather.c"},
    AllReduceRow{"doubling", ReduceSum::pairwise, false, false, false,
                 "replicas whose ranks differ in one bit exchange all that they have (a butterfly), so that nothing is "
                 "gathered; of more than 2^k replicas the first are paired before",
                 "MPICH, src/mpi/coll/allreduce: allreduce_intra_recursive_doubling.c"},
    AllReduceRow{"one-shot", ReduceSum::fp32, false, true, false,
                 "every replica receives all gradients and adds them in FP32",
                 "TensorRT-LLM: cpp/tensorrt_llm/kernels/customAllReduceKernels.cu, oneShotAllReduceKernel"},
    AllReduceRow{"all-to-all", ReduceSum::fp32, true, true, false,
                 "every replica receives one chunk of all gradients and adds it up in FP32; then chunks are gathered",
                 "Megatron-LM issue 6199: reduce_scatter_with_fp32_accumulation"},
    AllReduceRow{"exact", ReduceSum::exact, true, false, true, "a switch adds all gradients and rounds the sum once",
                 "NVLink SHARP (NVLS), as observed"},
};

constexpr const AllReduceRow& row_of(AllReduceOrder order) { return all_reduce_rows[static_cast<std::size_t>(order)]; }

/// The names of a table's rows, for parse_name().
template <class Row, std::size_t N>
constexpr std::array<std::string_view, N> names_in(const std::array<Row, N>& rows) {
    std::array<std::string_view, N> names{};
    for (std::size_t i = 0; i < N; ++i) names[i] = rows[i].name;
    return names;
}
inline constexpr auto all_reduce_order_names = names_in(all_reduce_rows);

/// The names of the algorithms with that property, such as &AllReduceRow::scatters: "ring, tree".
std::string names_of_orders(bool AllReduceRow::*property);

/// Whether messages may be cast to these blocks. A message is one row of numbers, and has no zero points.
constexpr bool takes_messages(const BlockSpec& blocks) { return blocks.rows <= 1 && blocks.rule != ScaleRule::affine; }

/// What the receiver of a message does with each chunk in it.
enum class Receive : std::uint8_t {
    add,  ///< what it has = what it has + what it received, rounded
    keep, ///< keeps it until it has the chunk of all replicas, then adds them at once (ReduceSum), its own included
    store ///< it takes the place of what it has; the chunk is passed on as it was received
};

/// A message: chunks [chunk, chunk + chunks) of the sender.
struct Transfer {
    int from = 0, to = 0, chunk = 0, chunks = 1;
    Receive receive = Receive::add;
    bool operator==(const Transfer&) const = default;
};

/// A range of elements.
struct ElementRange {
    std::int64_t begin = 0, end = 0;
    [[nodiscard]] constexpr std::int64_t count() const { return end - begin; }
};

/// The messages of an all-reduce, step by step. In a step a replica sends what it had before the step. The steps that
/// add come first (the reduce-scatter, if the row scatters), then those that store (the all-gather).
class Schedule {
  public:
    Schedule(AllReduceOrder order, int replicas);

    [[nodiscard]] AllReduceOrder order() const { return order_; }
    [[nodiscard]] int replicas() const { return replicas_; }
    [[nodiscard]] int chunks() const { return chunks_; }
    [[nodiscard]] int reducing_steps() const { return reducing_; }
    [[nodiscard]] int steps() const { return steps_; }
    [[nodiscard]] std::vector<Transfer> step(int i) const;
    /// Where a chunk lies in a tensor of so many elements: the first chunks are longer by the remainder.
    [[nodiscard]] ElementRange chunk(int c, std::int64_t elements) const;

  private:
    [[nodiscard]] int halving_rank(int folded) const;
    void add_pairs(std::vector<Transfer>& all, bool back) const;
    void add_exchange(std::vector<Transfer>& all, int mask, Receive receive) const;

    AllReduceOrder order_;
    int replicas_, chunks_, reducing_, steps_;
    int power_;  ///< the largest power of two that is not above the number of replicas
    int paired_; ///< the number of replicas beyond that power; each of them is paired with a neighbour at first
};

/// In the replicas' memory, to's chunk becomes its sum with from's, which is not read again.
struct Addition {
    std::int32_t from = 0, to = 0;
    bool operator==(const Addition&) const = default;
};

/// What becomes of one chunk: the additions in their order, and the replica that has the sum. Where all replicas'
/// numbers are added at once there are no additions.
struct ChunkSum {
    std::vector<Addition> additions;
    std::int32_t owner = 0;
};

/// For each chunk what a schedule computes of it, as replica 0 ends with it: the messages that it does not depend on
/// are left out. All replicas end with the same.
std::vector<ChunkSum> sums_of(const Schedule& schedule);

/// What messages consist of: numbers of a format or, cast by the sender, of blocks with scales.
struct Payload {
    FormatSpec format = fp32_format();
    const BlockSpec* blocks = nullptr; ///< a row of block_formats; then `format` is what replicas add in

    [[nodiscard]] std::string_view name() const { return blocks != nullptr ? blocks->name : format.name; }
    /// The bytes of a message of so many numbers, cast by itself, with their scales.
    [[nodiscard]] double bytes(std::int64_t numbers) const;
    /// The bytes of a part of a tensor that was cast whole, to blocks of that grid. The part comes with the scale, and
    /// the zero point if there is one, of each block that it has elements of, and with the tensor's upper scale.
    [[nodiscard]] double bytes(const ElementRange& part, const BlockGrid& grid) const;
};

/// The payload of that name: a format's, or that of a row of block_formats. Throws std::invalid_argument, listing both,
/// for any other.
Payload payload_of(std::string_view name);

/// What the replica that sends most sends.
struct Traffic {
    double bytes = 0;
    int messages = 0;
};

/// The traffic of steps [begin, end) of a schedule whose chunks have so many bytes.
Traffic traffic_of(const Schedule& schedule, std::span<const double> bytes_of_chunks, int begin, int end);

/// The same for a tensor of so many elements, each chunk of which is cast by itself.
Traffic traffic_of(const Schedule& schedule, const Payload& payload, std::int64_t elements, int begin, int end);

} // namespace amp

// The mean of the gradients of replicas.
#pragma once

#include <ampscope/sim/program/collective.h>
#include <ampscope/sim/program/ops/op.h>

#include <vector>

namespace amp {

/// How gradients become their mean: a row of all_reduce_divisions.
enum class AllReduceDivision : std::uint8_t { before, after, nccl_avg };

struct AllReduceDivisionRow {
    std::string_view name, meaning, source;
};
inline constexpr std::array all_reduce_divisions = {
    AllReduceDivisionRow{"before", "each gradient is divided by the number of replicas and rounded, then summed",
                         "PyTorch's DDP: ddp_comm_hooks/default_hooks.py"},
    AllReduceDivisionRow{"after", "the sum is divided by the number of replicas and rounded",
                         "Horovod: gradient_predivide_factor=1; DeepSpeed: prescale_gradients=false"},
    AllReduceDivisionRow{"nccl-avg", "each gradient is multiplied by 1 / N, which is rounded to the format before",
                         "NCCL, src/enqueue.cc: ncclAvg of floating point is PreMulSum"},
};
inline constexpr auto all_reduce_division_names = names_in(all_reduce_divisions);

/// An all-reduce but for its tensors: see op::AllReduce.
struct AllReduceOptions {
    AllReduceOrder order = AllReduceOrder::ring;
    AllReduceDivision division = AllReduceDivision::before;
    FormatSpec transport = format("fp32");
    bool scaled = false; ///< of a training: for the weights that a recipe scales; without a recipe, for all
    const BlockSpec* blocks = nullptr;

    [[nodiscard]] Payload payload() const { return {transport, blocks}; }
};

/// Throws std::invalid_argument for options that do not go together.
void check(const AllReduceOptions& options);

} // namespace amp

namespace amp::op {

/// out = the mean of the replicas' gradients. Replicas round their gradients to `transport`, and so every sum and
/// quotient. They are added as `order` has it.
///
/// If `blocks` are given, `transport` is what replicas add in, and each message is cast to these blocks; the receiver
/// adds what it reads. Blocks begin where a chunk begins, as do upper scales. Where numbers of all replicas are added
/// at once, all are as sent. The sum of a chunk is cast once more, by its owner, for all replicas to have the same
/// bits, unless it is not sent at all.
///
/// If not `gathers`, the chunks of the result stay with their owners (a reduce-scatter).
///
/// If `scaled`, as in MS-AMP's FP8DistributedDataParallel: every replica multiplies by one scale, which is the scale
/// that ScaleRule::ms_amp derives from the largest magnitude of all replicas, divided by the root of their number; sums
/// saturate; scale and mean are divided out by one factor in FP32. Infinite or NaN magnitudes are sent as NaN. (MS-AMP
/// saturates them, but notes the amax and treats the tensor as not finite.)
struct AllReduce {
    static constexpr std::string_view name = "all_reduce";
    std::vector<TensorId> in;
    TensorId out;
    AllReduceOrder order = AllReduceOrder::ring;
    AllReduceDivision division = AllReduceDivision::before;
    FormatSpec transport = format("fp32");
    bool scaled = false;
    const BlockSpec* blocks = nullptr; ///< a row of block_formats
    bool gathers = true;
    [[nodiscard]] const std::vector<TensorId>& inputs() const { return in; }
    [[nodiscard]] auto outputs() const { return std::array{out}; }
    [[nodiscard]] Schedule schedule() const { return {order, static_cast<int>(in.size())}; }
    [[nodiscard]] Payload payload() const { return {transport, blocks}; }
};
void run(Cpu& cpu, const AllReduce& op);
void run(Cuda& cuda, const AllReduce& op);

} // namespace amp::op

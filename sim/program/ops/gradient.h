// What happens to the gradients of parameters between backward and the optimizer.
#pragma once

#include <ampscope/sim/optim/loss_scaler.h>
#include <ampscope/sim/program/ops/op.h>

#include <vector>

namespace amp::op {

/// total[replica] = in for the first micro-batch of a step, then total + in, rounded to its format.
struct AccumulateGradient {
    static constexpr std::string_view name = "accumulate_gradient";
    static constexpr std::string_view accumulation = "the total's format, micro-batch by micro-batch";
    TensorId in;
    std::vector<TensorId> totals; ///< one a replica
    [[nodiscard]] auto inputs() const { return std::array{in}; }
    [[nodiscard]] const std::vector<TensorId>& outputs() const { return totals; }
};
void run(Cpu& cpu, const AccumulateGradient& op);
void run(Cuda& cuda, const AccumulateGradient& op);

enum class AllReduceOrder : std::uint8_t {
    ring, ///< chunk c of N (the first get the remainder) is summed from replica c + 1 on, round the ring
    tree  ///< neighbours pairwise, then pairs of neighbours; an odd one out joins the next round
};
inline constexpr std::array<std::string_view, 2> all_reduce_order_names = {"ring", "tree"};
enum class AllReduceDivision : std::uint8_t {
    before, ///< each replica's gradient is divided by their number, rounded, then summed (PyTorch's DDP hooks)
    after   ///< the sum is divided (Horovod, DeepSpeed's default)
};
inline constexpr std::array<std::string_view, 2> all_reduce_division_names = {"before", "after"};

/// out = the mean of the replicas' gradients: what is sent is rounded to `transport`, and so is every sum and quotient.
/// Scaled: as MS-AMP's FP8DistributedDataParallel has it: every replica multiplies by the scale that ScaleRule::ms_amp
/// makes of the largest magnitude of them all, divided by the root of their number; sums saturate; the scale is taken
/// out and the mean made by one factor in FP32. Where a magnitude is infinite or NaN it is sent as NaN, for MS-AMP,
/// which saturates it, notes the amax, and takes the tensor for what is not finite.
struct AllReduce {
    static constexpr std::string_view name = "all_reduce";
    std::vector<TensorId> in;
    TensorId out;
    AllReduceOrder order = AllReduceOrder::ring;
    AllReduceDivision division = AllReduceDivision::before;
    FormatSpec transport = format("fp32");
    bool scaled = false;
    [[nodiscard]] const std::vector<TensorId>& inputs() const { return in; }
    [[nodiscard]] auto outputs() const { return std::array{out}; }
};
void run(Cpu& cpu, const AllReduce& op);
void run(Cuda& cuda, const AllReduce& op);

/// Sets found_inf of the step if an element of a gradient is not finite.
struct CheckFinite {
    static constexpr std::string_view name = "check_finite";
    std::vector<TensorId> gradients;
    [[nodiscard]] const std::vector<TensorId>& inputs() const { return gradients; }
    [[nodiscard]] auto outputs() const { return std::array<TensorId, 0>{}; }
};
void run(Cpu& cpu, const CheckFinite& op);
void run(Cuda& cuda, const CheckFinite& op);

/// gradient divided by the step's scale, in place, as the framework does it; also in a step that is skipped.
struct Unscale {
    static constexpr std::string_view name = "unscale";
    TensorId gradient;
    UnscaleRule rule = UnscaleRule::reciprocal;
    [[nodiscard]] auto inputs() const { return std::array{gradient}; }
    [[nodiscard]] auto outputs() const { return std::array{gradient}; }
};
void run(Cpu& cpu, const Unscale& op);
void run(Cuda& cuda, const Unscale& op);

/// norm = sqrt of the sum of the squares of the gradients' norms, each rounded to its gradient's format first, as
/// torch's clip_grad_norm_ has it; squares are summed in double by lane_sum() of sim/backend/kernels/kernel.h.
struct GlobalNorm {
    static constexpr std::string_view name = "global_norm";
    static constexpr std::string_view accumulation = "double, 16 lanes a gradient";
    std::vector<TensorId> gradients;
    TensorId norm;
    [[nodiscard]] const std::vector<TensorId>& inputs() const { return gradients; }
    [[nodiscard]] auto outputs() const { return std::array{norm}; }
};
void run(Cpu& cpu, const GlobalNorm& op);
void run(Cuda& cuda, const GlobalNorm& op);

/// gradient *= min(1, max_norm / (norm + 1e-6)), the sum and the quotient rounded to the norm's format; a NaN norm
/// makes NaN.
struct Clip {
    static constexpr std::string_view name = "clip";
    TensorId norm, gradient;
    double max_norm = 1;
    [[nodiscard]] auto inputs() const { return std::array{norm, gradient}; }
    [[nodiscard]] auto outputs() const { return std::array{gradient}; }
};
void run(Cpu& cpu, const Clip& op);
void run(Cuda& cuda, const Clip& op);

} // namespace amp::op

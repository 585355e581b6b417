// Ops on the gradients of parameters between backward and the optimizer.
#pragma once

#include <ampscope/sim/optim/loss_scaler.h>
#include <ampscope/sim/program/ops/op.h>

#include <vector>

namespace amp::op {

/// total[replica] = in for the first micro-batch of a step; then total + in, rounded to the total's format.
struct AccumulateGradient {
    static constexpr std::string_view name = "accumulate_gradient";
    static constexpr std::string_view accumulation = "the total's format, micro-batch by micro-batch";
    TensorId in;
    std::vector<TensorId> totals; ///< one for each replica
    [[nodiscard]] auto inputs() const { return std::array{in}; }
    [[nodiscard]] const std::vector<TensorId>& outputs() const { return totals; }
};

enum class AllReduceOrder : std::uint8_t {
    ring, ///< chunk c of N (the first are longer by the remainder) is summed from replica c + 1 on, around the ring
    tree  ///< neighbours in pairs, then pairs of neighbours; an odd one out takes part in the next round
};
inline constexpr std::array<std::string_view, 2> all_reduce_order_names = {"ring", "tree"};
enum class AllReduceDivision : std::uint8_t {
    before, ///< each replica's gradient is divided by their number and rounded, then summed (PyTorch's DDP)
    after   ///< the sum is divided (Horovod, DeepSpeed's default)
};
inline constexpr std::array<std::string_view, 2> all_reduce_division_names = {"before", "after"};

/// out = the mean of the replicas' gradients. What is sent is rounded to `transport`, and so is every sum and quotient.
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
    [[nodiscard]] const std::vector<TensorId>& inputs() const { return in; }
    [[nodiscard]] auto outputs() const { return std::array{out}; }
};
void run(Cpu& cpu, const AllReduce& op);
void run(Cuda& cuda, const AllReduce& op);

/// Sets the step's found_inf if an element of a gradient is infinite or NaN.
struct CheckFinite {
    static constexpr std::string_view name = "check_finite";
    std::vector<TensorId> gradients;
    [[nodiscard]] const std::vector<TensorId>& inputs() const { return gradients; }
    [[nodiscard]] auto outputs() const { return std::array<TensorId, 0>{}; }
};
void run(Cpu& cpu, const CheckFinite& op);
void run(Cuda& cuda, const CheckFinite& op);

/// Divides the gradient by the step's loss scale, in place, by the framework's rule; also in steps that are skipped.
struct Unscale {
    static constexpr std::string_view name = "unscale";
    TensorId gradient;
    UnscaleRule rule = UnscaleRule::reciprocal;
    [[nodiscard]] auto inputs() const { return std::array{gradient}; }
    [[nodiscard]] auto outputs() const { return std::array{gradient}; }
};

/// norm = sqrt of the sum of the squares of the gradients' norms, each first rounded to its gradient's format, as in
/// torch's clip_grad_norm_; squares are summed in double by lane_sum() of sim/backend/kernels/kernel.h.
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

/// gradient *= min(1, max_norm / (norm + 1e-6)), as torch's clip_grad_norm_ has it: the sum, its reciprocal and the
/// product with max_norm are rounded to the norm's format. If the norm is NaN, so is the result.
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

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
    static constexpr bool adds = true;
    TensorId in;
    std::vector<TensorId> totals; ///< one for each replica
    [[nodiscard]] auto inputs() const { return std::array{in}; }
    [[nodiscard]] const std::vector<TensorId>& outputs() const { return totals; }
};

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

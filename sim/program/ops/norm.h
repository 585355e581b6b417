// Normalisation over the last axis.
#pragma once

#include <ampscope/sim/program/ops/op.h>

namespace amp::op {

enum class NormKind : std::uint8_t {
    layer, ///< (x - mean) / sqrt(variance + eps) * weight + bias
    rms    ///< x / sqrt(mean of x^2 + eps) * weight
};
inline constexpr std::array<std::string_view, 2> norm_names = {"layer", "rms"};

/// All in double; mean and variance are computed by lane_sum() of sim/backend/kernels/kernel.h, the variance from x -
/// mean.
struct Norm {
    static constexpr std::string_view name = "norm";
    static constexpr std::string_view accumulation = "double, 16 lanes";
    NormKind kind = NormKind::layer;
    TensorId in, weight, bias, out; ///< bias: for layer only
    double eps = 1e-5;
    [[nodiscard]] auto inputs() const { return std::array{in, weight, bias}; }
    [[nodiscard]] auto outputs() const { return std::array{out}; }
};
TensorId layer_norm(Graph& g, TensorId in, TensorId weight, TensorId bias, double eps = 1e-5);
TensorId rms_norm(Graph& g, TensorId in, TensorId weight, double eps = 1e-6);
void backward(Graph& g, const Norm& op);

/// The gradients of operand, weight and bias. Those of weight and bias are summed in double: over blocks of 32 rows in
/// order, then over the blocks in order.
struct NormBackward {
    static constexpr std::string_view name = "norm_backward";
    static constexpr std::string_view accumulation = "double, 16 lanes; of weights, blocks of 32 rows";
    NormKind kind = NormKind::layer;
    TensorId in, weight, grad_out, grad_in, grad_weight, grad_bias;
    double eps = 1e-5;
    [[nodiscard]] auto inputs() const { return std::array{in, weight, grad_out}; }
    [[nodiscard]] auto outputs() const { return std::array{grad_in, grad_weight, grad_bias}; }
};
void run(Cpu& cpu, const NormBackward& op);
void run(Cuda& cuda, const NormBackward& op);

} // namespace amp::op

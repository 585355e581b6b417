// Normalisation over the last axis, or over groups of channels.
#pragma once

#include <ampscope/sim/program/ops/op.h>

namespace amp::op {

enum class NormKind : std::uint8_t {
    layer, ///< (x - mean) / sqrt(variance + eps) * weight + bias
    rms    ///< x / sqrt(mean of x^2 + eps) * weight
};
inline constexpr std::array<std::string_view, 2> norm_names = {"layer", "rms"};

/// Which weight and bias the numbers of a row have. Row r is group r % groups of a sample's channels; a channel has one
/// weight, one bias and `positions` numbers, which follow each other. One group and position: a row is all channels.
struct NormRows {
    std::int64_t groups = 1, positions = 1;

    constexpr bool operator==(const NormRows&) const = default;
};

/// All in double; mean and variance are computed by lane_sum() of sim/backend/kernels/kernel.h, the variance from x -
/// mean.
struct Norm {
    static constexpr std::string_view name = "norm";
    static constexpr std::string_view accumulation = "double, 16 lanes";
    NormKind kind = NormKind::layer;
    TensorId in, weight, bias, out; ///< bias: for layer only
    double eps = 1e-5;
    NormRows rows{};
    [[nodiscard]] auto inputs() const { return std::array{in, weight, bias}; }
    [[nodiscard]] auto outputs() const { return std::array{out}; }
};
TensorId layer_norm(Graph& g, TensorId in, TensorId weight, TensorId bias, double eps = 1e-5);
TensorId rms_norm(Graph& g, TensorId in, TensorId weight, double eps = 1e-6);
/// torch.nn.functional.group_norm: of `in`, N x C x ..., each sample's C / groups channels that follow each other are
/// normalised together, as a row of layer norm is; weight and bias: C.
TensorId group_norm(Graph& g, TensorId in, TensorId weight, TensorId bias, std::int64_t groups, double eps = 1e-5);
void backward(Graph& g, const Norm& op);

/// The gradients of operand, weight and bias. Those of weight and bias are summed in double: over the positions of a
/// row's channel by lane_sum(), over blocks of 32 rows in order, then over the blocks in order.
struct NormBackward {
    static constexpr std::string_view name = "norm_backward";
    static constexpr std::string_view accumulation = "double, 16 lanes; of weights, blocks of 32 rows";
    NormKind kind = NormKind::layer;
    TensorId in, weight, grad_out, grad_in, grad_weight, grad_bias;
    double eps = 1e-5;
    NormRows rows{};
    [[nodiscard]] auto inputs() const { return std::array{in, weight, grad_out}; }
    [[nodiscard]] auto outputs() const { return std::array{grad_in, grad_weight, grad_bias}; }
};
void run(Cpu& cpu, const NormBackward& op);
void run(Cuda& cuda, const NormBackward& op);

} // namespace amp::op

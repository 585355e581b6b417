// Softmax over the last axis.
#pragma once

#include <ampscope/sim/program/ops/op.h>

namespace amp::op {

/// out_j = e^(x_j - max x) / (sum over j of these), in double; the sum is lane_sum() of backend/kernels/kernel.h. If
/// `causal`, row i of the last two axes uses elements 0 ... i only, and the others are +0.
struct Softmax {
    static constexpr std::string_view name = "softmax";
    static constexpr std::string_view accumulation = "double, 16 lanes";
    TensorId in, out;
    bool causal = false;
    [[nodiscard]] auto inputs() const { return std::array{in}; }
    [[nodiscard]] auto outputs() const { return std::array{out}; }
};
TensorId softmax(Graph& g, TensorId in, bool causal = false);
void backward(Graph& g, const Softmax& op);

/// grad_in_j = y_j (g_j - sum of y_k g_k), where y is the rounded result.
struct SoftmaxBackward {
    static constexpr std::string_view name = "softmax_backward";
    static constexpr std::string_view accumulation = "double, 16 lanes";
    TensorId y, grad_out, grad_in;
    bool causal = false;
    [[nodiscard]] auto inputs() const { return std::array{y, grad_out}; }
    [[nodiscard]] auto outputs() const { return std::array{grad_in}; }
};

} // namespace amp::op

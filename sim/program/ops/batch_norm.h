// Normalisation over a batch, channel by channel, with running statistics.
#pragma once

#include <ampscope/sim/program/ops/op.h>

namespace amp::op {

/// out = (x - mean) * inverse * weight + bias, in double, rounded once; each for a channel, which is the last axis. In
/// training, mean and variance are those of all numbers of the channel in this micro-batch, computed in double by
/// lane_sum() of sim/backend/kernels/kernel.h in the order of rows, the variance from x - mean; inverse = 1 /
/// sqrt(variance + eps). `mean` and `inverse` are kept in FP32, rounded once, and read from there, as cuDNN and PyTorch
/// do. Elsewhere they are the running statistics'.
///
/// In training, too, running = (1 - momentum) * running + momentum * statistic, in double, rounded once; the running
/// variance takes the sum of squares from the mean, both in double, divided by n - 1. Only the first replica updates
/// them, in each of its micro-batches, as torch's DDP copies the buffers of rank 0 to all; a step that is skipped does
/// not take it back.
struct BatchNorm {
    static constexpr std::string_view name = "batch_norm";
    static constexpr std::string_view accumulation = "double, 16 lanes";
    TensorId in, weight, bias, running_mean, running_variance, out, mean, inverse;
    double eps = 1e-5, momentum = 0.1;
    [[nodiscard]] auto inputs() const { return std::array{in, weight, bias, running_mean, running_variance}; }
    [[nodiscard]] auto outputs() const { return std::array{out, mean, inverse, running_mean, running_variance}; }
};
/// `in`: ... x C; weight, bias and the running statistics: C. The result has the format of `in`, unless autocast casts
/// that; weight and bias keep theirs under autocast, as torch's kernels take FP32 weights with FP16 images.
TensorId batch_norm(Graph& g, TensorId in, TensorId weight, TensorId bias, TensorId running_mean,
                    TensorId running_variance, double eps = 1e-5, double momentum = 0.1);
void backward(Graph& g, const BatchNorm& op);

/// With y = (x - mean) * inverse and, for each channel of n numbers, grad_bias = sum of g and grad_weight = sum of g y
/// (lane_sum(), in double, rounded to FP32):
///   grad_in = (g - grad_bias / n - y * grad_weight / n) * inverse * weight, in double, rounded once.
struct BatchNormBackward {
    static constexpr std::string_view name = "batch_norm_backward";
    static constexpr std::string_view accumulation = "double, 16 lanes";
    TensorId in, weight, mean, inverse, grad_out, grad_in, grad_weight, grad_bias;
    [[nodiscard]] auto inputs() const { return std::array{in, weight, mean, inverse, grad_out}; }
    [[nodiscard]] auto outputs() const { return std::array{grad_in, grad_weight, grad_bias}; }
};

} // namespace amp::op

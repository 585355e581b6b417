// Losses: scalars, averaged over a batch.
#pragma once

#include <ampscope/sim/program/ops/op.h>

namespace amp::op {

/// out = the mean over rows of log(sum of e^x) - x_target, in double, rows in order. Rows with a negative target are
/// ignored; NaN if all are.
struct CrossEntropy {
    static constexpr std::string_view name = "cross_entropy";
    static constexpr std::string_view accumulation = "double, 16 lanes a row, then row by row";
    TensorId logits, targets, out; ///< logits: rows x classes; targets: a class number for each row, stored as a float
    [[nodiscard]] auto inputs() const { return std::array{logits, targets}; }
    [[nodiscard]] auto outputs() const { return std::array{out}; }
};
TensorId cross_entropy(Graph& g, TensorId logits, TensorId targets);
void backward(Graph& g, const CrossEntropy& op);
void run(Cpu& cpu, const CrossEntropy& op);
void run(Cuda& cuda, const CrossEntropy& op);

/// grad_in = (softmax(x) - [j is the target]) * grad_out / number of rows that are not ignored.
struct CrossEntropyBackward {
    static constexpr std::string_view name = "cross_entropy_backward";
    TensorId logits, targets, grad_out, grad_in;
    [[nodiscard]] auto inputs() const { return std::array{logits, targets, grad_out}; }
    [[nodiscard]] auto outputs() const { return std::array{grad_in}; }
};
void run(Cpu& cpu, const CrossEntropyBackward& op);
void run(Cuda& cuda, const CrossEntropyBackward& op);

/// out = the mean of (x - target)^2, in double, elements in order.
struct MseLoss {
    static constexpr std::string_view name = "mse_loss";
    static constexpr std::string_view accumulation = "double, in order";
    TensorId in, targets, out;
    [[nodiscard]] auto inputs() const { return std::array{in, targets}; }
    [[nodiscard]] auto outputs() const { return std::array{out}; }
};
TensorId mse_loss(Graph& g, TensorId in, TensorId targets);
void backward(Graph& g, const MseLoss& op);
void run(Cpu& cpu, const MseLoss& op);
void run(Cuda& cuda, const MseLoss& op);

/// grad_in = (x - target) * factor, where the factor, 2 grad_out / number of elements, is a double, as is each product
/// before it is rounded.
struct MseLossBackward {
    static constexpr std::string_view name = "mse_loss_backward";
    TensorId in, targets, grad_out, grad_in;
    [[nodiscard]] auto inputs() const { return std::array{in, targets, grad_out}; }
    [[nodiscard]] auto outputs() const { return std::array{grad_in}; }
};
void run(Cpu& cpu, const MseLossBackward& op);
void run(Cuda& cuda, const MseLossBackward& op);

/// out = the gradient that backward starts with: the step's loss scale, rounded to the format of out as PyTorch rounds
/// it to the type of the loss, then divided by the number of micro-batches and rounded again.
struct LossGradient {
    static constexpr std::string_view name = "loss_gradient";
    TensorId out;
    [[nodiscard]] auto inputs() const { return std::array<TensorId, 0>{}; }
    [[nodiscard]] auto outputs() const { return std::array{out}; }
};
void run(Cpu& cpu, const LossGradient& op);
void run(Cuda& cuda, const LossGradient& op);

} // namespace amp::op

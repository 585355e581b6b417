// Losses: scalars, averaged over a batch.
#pragma once

#include <ampscope/sim/program/ops/op.h>

namespace amp::op {

/// What a cross-entropy has beside log Z - x_target. With Z the sum of e^x over a row of K logits, the loss of the row
/// is log Z - (1 - label_smoothing) x_target - label_smoothing (sum of x) / K + z_loss (log Z)^2, which is
/// torch.nn.functional.cross_entropy's label_smoothing, and PaLM's z-loss (arXiv:2204.02311, section 5) as t5x computes
/// it (t5x/losses.py: cross_entropy_with_logits). A part whose coefficient is 0 is not computed.
struct LossTerms {
    double label_smoothing = 0; ///< 0 to 1
    double z_loss = 0;          ///< not negative
    bool in_evaluation = false; ///< false: evaluation is without both, so that e^loss is a perplexity

    bool operator==(const LossTerms&) const = default;
};

/// out = the mean over rows of log Z - x_target, or of the loss that LossTerms describes, in double, rows in order.
/// Rows with a negative target are ignored; NaN if all are.
struct CrossEntropy {
    static constexpr std::string_view name = "cross_entropy";
    static constexpr std::string_view accumulation = "double, 16 lanes a row, then row by row";
    TensorId logits, targets, out; ///< logits: rows x classes; targets: a class number for each row, stored as a float
    LossTerms terms{};
    [[nodiscard]] auto inputs() const { return std::array{logits, targets}; }
    [[nodiscard]] auto outputs() const { return std::array{out}; }
};
TensorId cross_entropy(Graph& g, TensorId logits, TensorId targets, const LossTerms& terms = {});
void backward(Graph& g, const CrossEntropy& op);
void run(Cpu& cpu, const CrossEntropy& op);
void run(Cuda& cuda, const CrossEntropy& op);

/// grad_in = (softmax(x) (1 + 2 z_loss log Z) - label_smoothing / K - (1 - label_smoothing) [j is the target]) times
/// the factor, grad_out / number of rows that are not ignored; in double, in this order.
struct CrossEntropyBackward {
    static constexpr std::string_view name = "cross_entropy_backward";
    TensorId logits, targets, grad_out, grad_in;
    LossTerms terms{};
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

// Look-up of table rows by number.
#pragma once

#include <ampscope/sim/program/ops/op.h>

namespace amp::op {

/// out = the rows of weight (entries x width) with the numbers in `indices` (whole numbers in range, stored as floats).
struct Embedding {
    static constexpr std::string_view name = "embedding";
    TensorId weight, indices, out;
    [[nodiscard]] auto inputs() const { return std::array{weight, indices}; }
    [[nodiscard]] auto outputs() const { return std::array{out}; }
};
TensorId embedding(Graph& g, TensorId weight, TensorId indices);
void backward(Graph& g, const Embedding& op);
void run(Cpu& cpu, const Embedding& op);
void run(Cuda& cuda, const Embedding& op);

/// grad_weight: for each entry, the sum of the gradients of its uses, in FP32, in the order of the uses.
struct EmbeddingBackward {
    static constexpr std::string_view name = "embedding_backward";
    static constexpr std::string_view accumulation = "fp32, use by use";
    TensorId indices, grad_out, grad_weight;
    [[nodiscard]] auto inputs() const { return std::array{indices, grad_out}; }
    [[nodiscard]] auto outputs() const { return std::array{grad_weight}; }
};
void run(Cpu& cpu, const EmbeddingBackward& op);
void run(Cuda& cuda, const EmbeddingBackward& op);

} // namespace amp::op

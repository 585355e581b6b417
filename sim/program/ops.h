// The list of all ops, and the tapes that consist of them.
#pragma once

#include <ampscope/sim/program/ops/activation.h>
#include <ampscope/sim/program/ops/all_reduce.h>
#include <ampscope/sim/program/ops/attention.h>
#include <ampscope/sim/program/ops/batch_norm.h>
#include <ampscope/sim/program/ops/concat.h>
#include <ampscope/sim/program/ops/conv2d.h>
#include <ampscope/sim/program/ops/elementwise.h>
#include <ampscope/sim/program/ops/embedding.h>
#include <ampscope/sim/program/ops/gradient.h>
#include <ampscope/sim/program/ops/loss.h>
#include <ampscope/sim/program/ops/matmul.h>
#include <ampscope/sim/program/ops/norm.h>
#include <ampscope/sim/program/ops/orthogonal.h>
#include <ampscope/sim/program/ops/pool.h>
#include <ampscope/sim/program/ops/quantize.h>
#include <ampscope/sim/program/ops/reduce.h>
#include <ampscope/sim/program/ops/rope.h>
#include <ampscope/sim/program/ops/second_moment.h>
#include <ampscope/sim/program/ops/shape.h>
#include <ampscope/sim/program/ops/softmax.h>
#include <ampscope/sim/program/ops/update.h>

#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace amp {

using Op =
    std::variant<op::Matmul, op::Add, op::Mul, op::Scale, op::Cast, op::Dropout, op::Activation, op::ActivationBackward,
                 op::Softmax, op::SoftmaxBackward, op::FusedAttention, op::FusedAttentionBackward, op::Norm,
                 op::NormBackward, op::BatchNorm, op::BatchNormBackward, op::View, op::Transpose, op::Concat, op::Split,
                 op::Im2Col, op::Col2Im, op::Pool, op::PoolBackward, op::Embedding, op::EmbeddingBackward, op::Quantize,
                 op::Dequantize, op::UpdateScale, op::Hadamard, op::Reduce, op::ReduceBackward, op::Rope,
                 op::CrossEntropy, op::CrossEntropyBackward, op::MseLoss, op::MseLossBackward, op::LossGradient,
                 op::AccumulateGradient, op::AllReduce, op::CheckFinite, op::Unscale, op::GlobalNorm, op::Clip,
                 op::Lerp, op::Normalize, op::AddScaled, op::MeanSquare, op::InverseRoot, op::Update>;

/// An op, and the rule that decided its formats.
struct Instruction {
    Op op;
    std::string rule;
};
using Tape = std::vector<Instruction>;

/// Where tensors begin in a memory that some of them share, one after the other, in elements; the others have memory of
/// their own, and so have all where nothing is planned. memory_plan.h has what plans it.
struct SharedMemory {
    std::vector<std::optional<std::size_t>> places{}; ///< one for each tensor of the program, or none at all
    std::size_t size = 0;                             ///< The memory has so many elements.

    [[nodiscard]] std::optional<std::size_t> place(std::size_t tensor) const {
        return places.empty() ? std::nullopt : places[tensor];
    }
};

/// The tapes of a training step and the tensors that they use.
struct Program {
    std::vector<TensorInfo> tensors;
    Tape forward, backward; ///< run for each micro-batch of each replica
    Tape check;             ///< all-reduce and the search for infinities and NaNs, once a step
    Tape unscale;           ///< division by the loss scale, if there is one
    Tape update;            ///< clipping and optimizer, unless the step is skipped
    SharedMemory shared{};

    [[nodiscard]] const TensorInfo& operator[](TensorId id) const {
        return tensors[static_cast<std::size_t>(id.index)];
    }
    TensorInfo& operator[](TensorId id) { return tensors[static_cast<std::size_t>(id.index)]; }
};

std::string_view name_of(const Op& op);
/// The tensors that an op reads, and those that it writes; absent ones are left out.
std::vector<TensorId> inputs_of(const Op& op);
std::vector<TensorId> outputs_of(const Op& op);
/// Whether an op writes every element of its outputs, and reads none of these that is not among its inputs, too.
bool writes_all(const Op& op);
/// How the matrix products of an op compute; empty for an op without such.
std::vector<op::MatmulArithmetic> products_of(const Op& op);

} // namespace amp

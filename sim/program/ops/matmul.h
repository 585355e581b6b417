// Matrix products: everything that a tensor core would compute.
#pragma once

#include <ampscope/formats/accumulator.h>
#include <ampscope/sim/program/ops/quantize.h>

#include <string>

namespace amp::op {

/// How a matrix product reads its operands and adds up.
struct MatmulArithmetic {
    FormatSpec operands = format("fp32"); ///< operands are rounded to it when read: tf32 is such a mode
    Rounding operand_rounding = Rounding::nearest_even;
    Accumulator accumulate{}; ///< it must take operands of these formats

    constexpr bool operator==(const MatmulArithmetic&) const = default;
};

/// out = a b + bias for each of `batch` matrices: a is m x k and b is k x n, each may be stored transposed; bias
/// (optional) is a row of n for all, or for each of them. Sums start at +0 and follow arithmetic.accumulate: by
/// default, FP32 fused multiply-adds in the order of k. The bias is added in FP32 and the sum rounded to
/// accumulate.total(), then once to the format of out.
/// With scaled operands (both or none; batch is 1), a new sum begins with every block along k. Each sum is multiplied
/// by the product of its two scales and added to a total by an FP32 fused multiply-add, as in a kernel that promotes
/// its sums (DeepGEMM). Upper scales multiply the total in FP32, as TE does: by the product of both tensors' and of the
/// inverse of their divisors; where one has scales of lines, by that inverse at first, then by the product of both, or,
/// where both have them, by that of the row and that of the column.
struct Matmul {
    static constexpr std::string_view name = "matmul";
    TensorId a, b, bias, out;
    std::int64_t batch = 1, m = 0, n = 0, k = 0;
    bool transpose_a = false, transpose_b = false;
    MatmulArithmetic arithmetic{};
    OperandScale a_scale{}, b_scale{};
    [[nodiscard]] auto inputs() const {
        return std::array{a, b, bias, a_scale.scale, b_scale.scale, a_scale.upper, b_scale.upper};
    }
    [[nodiscard]] auto outputs() const { return std::array{out}; }
    [[nodiscard]] auto products() const { return std::array{arithmetic}; }
};
/// The operands of a layer x W^T + bias, cast as the precision asks for, except for the casts with scales.
struct LayerOperands {
    TensorId x, weight, bias;
    FormatSpec output;
    std::string rule;
    bool scales = false;
};
LayerOperands layer_operands(Graph& g, std::string_view op, TensorId x, TensorId weight, TensorId bias);
/// Appends out = x W^T + bias, scaled if layer.scales; x is the layer's operand, or what an op made of it. With groups,
/// which have no scales, each has rows of x and of W and numbers of the bias of its own.
TensorId append_layer(Graph& g, const LayerOperands& layer, TensorId x, TensorId out, std::int64_t groups = 1);
/// x W^T + bias over the last axis of x. W is out_features x in_features, as in PyTorch; bias may be absent.
TensorId linear(Graph& g, TensorId x, TensorId weight, TensorId bias);
/// a b + bias, or a b^T + bias, over the last two axes; the axes before them must be equal. The bias, one number for
/// each column of the result, may be absent.
TensorId matmul(Graph& g, TensorId a, TensorId b, bool transpose_b = false, TensorId bias = {});
void backward(Graph& g, const Matmul& op);
void run(Cpu& cpu, const Matmul& op);
void run(Cuda& cuda, const Matmul& op);

} // namespace amp::op

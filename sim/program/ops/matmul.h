// Matrix products: all that a tensor core would do.
#pragma once

#include <ampscope/formats/accumulator.h>
#include <ampscope/sim/program/ops/quantize.h>

#include <string>

namespace amp::op {

/// How a matrix product reads its operands and adds up.
struct MatmulArithmetic {
    FormatSpec operands = format("fp32"); ///< operands are rounded to it when read: tf32 is a mode of the product
    Rounding operand_rounding = Rounding::nearest_even;
    Accumulator accumulate{}; ///< takes operands of these formats

    constexpr bool operator==(const MatmulArithmetic&) const = default;
};

/// out = a b + bias for each of `batch` matrices: a is m x k, b is k x n, or stored transposed; bias (optional) is a
/// row of n. Sums start at +0 and are made by arithmetic.accumulate: by default fused multiply-adds in FP32, in the
/// order of k. The bias is added in FP32 and the sum rounded to accumulate.total(); then one rounding to the format of
/// out.
///
/// Scaled operands (both or none; batch is 1): sums begin anew with every block along k, and each is multiplied by the
/// product of the operands' scales and added to a total by a fused multiply-add in FP32, as a kernel does that promotes
/// its sums (DeepGEMM); the total is multiplied by the product of tensor scales, if there are any.
struct Matmul {
    static constexpr std::string_view name = "matmul";
    TensorId a, b, bias, out;
    std::int64_t batch = 1, m = 0, n = 0, k = 0;
    bool transpose_a = false, transpose_b = false;
    MatmulArithmetic arithmetic{};
    OperandScale a_scale{}, b_scale{};
    [[nodiscard]] auto inputs() const {
        return std::array{a, b, bias, a_scale.scale, b_scale.scale, a_scale.tensor_scale, b_scale.tensor_scale};
    }
    [[nodiscard]] auto outputs() const { return std::array{out}; }
};
/// The operands of a layer x W^T + bias, cast as the precision wants them, but for the scales that it may want too.
struct LayerOperands {
    TensorId x, weight, bias;
    FormatSpec output;
    std::string rule;
    bool scales = false;
};
LayerOperands layer_operands(Graph& g, std::string_view op, TensorId x, TensorId weight, TensorId bias);
/// Appends out = x W^T + bias, scaled if that is wanted; x is the layer's, or what an op made of it.
TensorId append_layer(Graph& g, const LayerOperands& layer, TensorId x, TensorId out);
/// x W^T + bias over the last axis of x: W is out x in, as in PyTorch; bias may be absent.
TensorId linear(Graph& g, TensorId x, TensorId weight, TensorId bias);
/// a b, or a b^T, of the last two axes; equal axes before them.
TensorId matmul(Graph& g, TensorId a, TensorId b, bool transpose_b = false);
void backward(Graph& g, const Matmul& op);
void run(Cpu& cpu, const Matmul& op);
void run(Cuda& cuda, const Matmul& op);

} // namespace amp::op

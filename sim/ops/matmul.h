// Matrix products: all that a tensor core would do.
#pragma once

#include <ampscope/formats/accumulator.h>
#include <ampscope/sim/ops/op.h>

namespace amp {

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
struct Matmul {
    static constexpr std::string_view name = "matmul";
    TensorId a, b, bias, out;
    std::int64_t batch = 1, m = 0, n = 0, k = 0;
    bool transpose_a = false, transpose_b = false;
    MatmulArithmetic arithmetic{};
    [[nodiscard]] auto inputs() const { return std::array{a, b, bias}; }
    [[nodiscard]] auto outputs() const { return std::array{out}; }
};
/// x W^T + bias over the last axis of x: W is out x in, as in PyTorch; bias may be absent.
TensorId linear(Graph& g, TensorId x, TensorId weight, TensorId bias);
/// a b, or a b^T, of the last two axes; equal axes before them.
TensorId matmul(Graph& g, TensorId a, TensorId b, bool transpose_b = false);
void backward(Graph& g, const Matmul& op);
void run(Cpu& cpu, const Matmul& op);

} // namespace amp

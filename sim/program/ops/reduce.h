// Sums and means over leading axes.
#pragma once

#include <ampscope/sim/program/ops/op.h>

namespace amp::op {

enum class ReduceKind : std::uint8_t { sum, mean };

/// out_j = the sum of in_ij over i: starts at +0, in the order of i, each addition rounded to `accumulate`; for a mean
/// the sum is then divided by the number of rows, in double. One rounding to the format of out. The same for each of
/// `batch` matrices.
struct Reduce {
    static constexpr std::string_view name = "reduce";
    ReduceKind kind = ReduceKind::sum;
    TensorId in, out;
    std::int64_t batch = 1;
    FormatSpec accumulate = format("fp32");
    [[nodiscard]] auto inputs() const { return std::array{in}; }
    [[nodiscard]] auto outputs() const { return std::array{out}; }
};
/// The sum and the mean of all elements.
TensorId sum(Graph& g, TensorId in);
TensorId mean(Graph& g, TensorId in);
void backward(Graph& g, const Reduce& op);
void run(Cpu& cpu, const Reduce& op);
void run(Cuda& cuda, const Reduce& op);

/// grad_in = factor * grad_out, repeated over the leading axes; the product is a double that is then rounded, so that a
/// third of a number that a third divides is exact.
struct ReduceBackward {
    static constexpr std::string_view name = "reduce_backward";
    TensorId grad_out, grad_in;
    double factor = 1;
    [[nodiscard]] auto inputs() const { return std::array{grad_out}; }
    [[nodiscard]] auto outputs() const { return std::array{grad_in}; }
};

} // namespace amp::op

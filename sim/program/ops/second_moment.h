// Ops of optimizers that keep a second moment in factors, such as Adafactor.
#pragma once

#include <ampscope/sim/program/ops/op.h>

namespace amp::op {

/// The means of the squares of a matrix: out_i that of row i, or out_j that of column j if `of_columns`. As PyTorch
/// takes them from norms: the root of the sum of squares is rounded to the format of out, so is its square, computed in
/// FP32, and that divided by the number of squares.
struct MeanSquare {
    static constexpr std::string_view name = "mean_square";
    static constexpr std::string_view accumulation = "double, 16 lanes a row, in order down a column";
    TensorId in, out;
    bool of_columns = false;
    [[nodiscard]] auto inputs() const { return std::array{in}; }
    [[nodiscard]] auto outputs() const { return std::array{out}; }
};

/// out = 1 / sqrt(max(in, least)), where least is first rounded to the format of in: the root is rounded to FP32, so is
/// the quotient, and that to the format of out. A NaN stays one.
struct InverseRoot {
    static constexpr std::string_view name = "inverse_root";
    TensorId in, out; ///< Both have one shape; out may be in.
    double least = 0;
    [[nodiscard]] auto inputs() const { return std::array{in}; }
    [[nodiscard]] auto outputs() const { return std::array{out}; }
};

} // namespace amp::op

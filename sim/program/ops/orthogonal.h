// Ops of optimizers that make a matrix orthogonal, such as Muon: what they need beside matrix products and norms. All
// compute in FP32, every operation rounded, as PyTorch does with tensors of any format.
#pragma once

#include <ampscope/sim/program/ops/op.h>

namespace amp::op {

/// out = a + w (b - a), as torch.lerp computes it: from b if w, rounded to FP32, is 0.5 or more. w is `weight` times
/// t^power, where t is the number of the update, from 1, computed in FP64. `contract`: the product and the sum are
/// rounded once, as its kernels for AVX2 do.
struct Lerp {
    static constexpr std::string_view name = "lerp";
    TensorId a, b, out; ///< of one shape; out may be one of the others
    double weight = 0;
    bool contract = false;
    double power = 0;
    [[nodiscard]] auto inputs() const { return std::array{a, b}; }
    [[nodiscard]] auto outputs() const { return std::array{out}; }
};

/// out = in / max(norm, least), where least is first rounded to the norm's format, or in / (norm + least) if
/// `adds_least`: a sum in FP32 that is rounded to the norm's format. A norm of 2^64 or more counts as infinite if
/// `overflows`: the sum of squares has no room in FP32. A norm of NaN makes everything NaN.
struct Normalize {
    static constexpr std::string_view name = "normalize";
    TensorId in, norm, out; ///< norm is one number; out may be in
    double least = 0;
    bool overflows = false, adds_least = false;
    [[nodiscard]] auto inputs() const { return std::array{in, norm}; }
    [[nodiscard]] auto outputs() const { return std::array{out}; }
};

/// out = alpha product + beta addend, as torch.addmm has it of a matrix product: both products are rounded, then their
/// sum, then the result to the format of out.
struct AddScaled {
    static constexpr std::string_view name = "add_scaled";
    TensorId product, addend, out; ///< of one shape; out may be addend
    double alpha = 1, beta = 1;
    [[nodiscard]] auto inputs() const { return std::array{product, addend}; }
    [[nodiscard]] auto outputs() const { return std::array{out}; }
};

} // namespace amp::op

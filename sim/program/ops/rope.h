// Rotary positions.
#pragma once

#include <ampscope/sim/program/ops/op.h>

namespace amp::op {

/// Turns the pairs of elements i and i + D / 2 of a row of D numbers by the angle t * theta^(-2 i / D), where t is the
/// row's number along the last axis but one (J. Su et al., "RoFormer", 2021; pairs as in Hugging Face's Llama):
///   out_i = x_i cos - x_(i + D / 2) sin,   out_(i + D / 2) = x_(i + D / 2) cos + x_i sin.
/// The frequency theta^(-2 i / D) = e^(-2 i / D * ln theta) is computed in double and rounded to FP32, and so is the
/// angle; all else is in double and rounded once, as in Llama's own code, which multiplies in FP32. (Hugging Face's
/// rounds sine, cosine and both products to the format of x.) The gradient turns back: `inverse` changes the sign of
/// sin.
struct Rope {
    static constexpr std::string_view name = "rope";
    TensorId in, out;
    double theta = 10000;
    bool inverse = false;
    [[nodiscard]] auto inputs() const { return std::array{in}; }
    [[nodiscard]] auto outputs() const { return std::array{out}; }
};
/// `in`: ... x T x D, D even; T is at most 2^24.
TensorId rope(Graph& g, TensorId in, double theta = 10000);
void backward(Graph& g, const Rope& op);

} // namespace amp::op

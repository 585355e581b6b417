// Element-wise ops: sum, product, scaling, cast, dropout.
#pragma once

#include <ampscope/sim/program/ops/op.h>

namespace amp::op {

/// out = a + b; b's shape is a suffix of a's, and b is repeated over the axes before it.
struct Add {
    static constexpr std::string_view name = "add";
    TensorId a, b, out;
    [[nodiscard]] auto inputs() const { return std::array{a, b}; }
    [[nodiscard]] auto outputs() const { return std::array{out}; }
};
TensorId add(Graph& g, TensorId a, TensorId b);
void backward(Graph& g, const Add& op);

/// out = a * b; b as in Add.
struct Mul {
    static constexpr std::string_view name = "mul";
    TensorId a, b, out;
    [[nodiscard]] auto inputs() const { return std::array{a, b}; }
    [[nodiscard]] auto outputs() const { return std::array{out}; }
};
TensorId mul(Graph& g, TensorId a, TensorId b);
void backward(Graph& g, const Mul& op);

/// out = factor * in. `in_single`: the factor and the product are rounded to FP32 first, as torch multiplies a tensor
/// of fewer bits by a number.
struct Scale {
    static constexpr std::string_view name = "scale";
    TensorId in, out;
    double factor = 1;
    bool in_single = false;
    [[nodiscard]] auto inputs() const { return std::array{in}; }
    [[nodiscard]] auto outputs() const { return std::array{out}; }
};
TensorId scale(Graph& g, TensorId in, double factor);
void backward(Graph& g, const Scale& op);

/// out = in, rounded to the format of out.
struct Cast {
    static constexpr std::string_view name = "cast";
    TensorId in, out;
    [[nodiscard]] auto inputs() const { return std::array{in}; }
    [[nodiscard]] auto outputs() const { return std::array{out}; }
};
void backward(Graph& g, const Cast& op);

/// out = in * (1 / (1 - probability)), all in double, if the element's random word is at least probability * 2^32, else
/// 0. The word depends on the op's stream, the step and the element's number in the step (replicas, then micro-batches,
/// then elements), so the gradient passes through the same elements. Outside training, out = in.
struct Dropout {
    static constexpr std::string_view name = "dropout";
    TensorId in, out;
    double probability = 0;
    std::uint32_t stream = 0;
    [[nodiscard]] auto inputs() const { return std::array{in}; }
    [[nodiscard]] auto outputs() const { return std::array{out}; }
};
TensorId dropout(Graph& g, TensorId in, double probability);
void backward(Graph& g, const Dropout& op);

} // namespace amp::op

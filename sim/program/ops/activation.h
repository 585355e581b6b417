// The activation functions: a new one is an enumerator, a name and a row of sim/backend/cpu/activation.cpp.
#pragma once

#include <ampscope/sim/program/ops/op.h>

namespace amp::op {

enum class ActivationKind : std::uint8_t {
    relu,      ///< x where x > 0, NaN where x is NaN, else +0; gradient 0 at 0
    gelu,      ///< x * Phi(x) (Hendrycks and Gimpel 2016)
    gelu_tanh, ///< x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) / 2
    tanh,
    sigmoid
};
inline constexpr std::array<std::string_view, 5> activation_names = {"relu", "gelu", "gelu_tanh", "tanh", "sigmoid"};

/// out = f(in).
struct Activation {
    static constexpr std::string_view name = "activation";
    ActivationKind kind = ActivationKind::relu;
    TensorId in, out;
    [[nodiscard]] auto inputs() const { return std::array{in}; }
    [[nodiscard]] auto outputs() const { return std::array{out}; }
};
TensorId activation(Graph& g, ActivationKind kind, TensorId in);
void backward(Graph& g, const Activation& op);
void run(Cpu& cpu, const Activation& op);
void run(Cuda& cuda, const Activation& op);

/// grad_in = grad_out * f'(x). tanh and sigmoid take it from `saved`, their result as it was rounded, as PyTorch does;
/// the others take it from their operand.
struct ActivationBackward {
    static constexpr std::string_view name = "activation_backward";
    ActivationKind kind = ActivationKind::relu;
    TensorId saved, grad_out, grad_in;
    [[nodiscard]] auto inputs() const { return std::array{saved, grad_out}; }
    [[nodiscard]] auto outputs() const { return std::array{grad_in}; }
};
void run(Cpu& cpu, const ActivationBackward& op);
void run(Cuda& cuda, const ActivationBackward& op);

} // namespace amp::op

// The activation functions. To add one, add an enumerator with its facts here and its functions in
// sim/backend/kernels/activation.h; tests take its definition from tests/reference_ops.h.
#pragma once

#include <ampscope/sim/program/ops/op.h>

namespace amp::op {

enum class ActivationKind : std::uint8_t {
    relu,      ///< x if x > 0, NaN if x is NaN, else +0; the gradient at 0 is 0
    gelu,      ///< x * Phi(x) (Hendrycks and Gimpel 2016)
    gelu_tanh, ///< x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) / 2
    tanh,
    sigmoid,
    silu ///< x / (1 + e^-x) (Elfwing et al. 2018)
};

struct ActivationFacts {
    std::string_view name, autocast; ///< its name in options, and its row in the autocast table
    bool by_result = false;          ///< whether the derivative is computed from the result instead of the operand
};

constexpr ActivationFacts facts_of(ActivationKind kind) {
    switch (kind) {
    case ActivationKind::relu: return {"relu", "relu"};
    case ActivationKind::gelu: return {"gelu", "gelu"};
    case ActivationKind::gelu_tanh: return {"gelu_tanh", "gelu"};
    case ActivationKind::tanh: return {"tanh", "tanh", true};
    case ActivationKind::sigmoid: return {"sigmoid", "sigmoid", true};
    case ActivationKind::silu: return {"silu", "silu"};
    }
    return {};
}
inline constexpr auto activation_names = names_by([](std::size_t i) { return facts_of(ActivationKind(i)).name; });

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

/// grad_in = grad_out * f'(x). `saved` is the operand or, where PyTorch uses that, the rounded result.
struct ActivationBackward {
    static constexpr std::string_view name = "activation_backward";
    ActivationKind kind = ActivationKind::relu;
    TensorId saved, grad_out, grad_in;
    [[nodiscard]] auto inputs() const { return std::array{saved, grad_out}; }
    [[nodiscard]] auto outputs() const { return std::array{grad_in}; }
};

} // namespace amp::op

// The activation functions and their derivatives. To add one, add a struct and a case here, and a row in
// program/ops/activation.h. Functions quick_*() are optional: formats/scalar_math_estimate.h.
#pragma once

#include <ampscope/formats/scalar_math_estimate.h>
#include <ampscope/sim/backend/kernels/kernel.h>
#include <ampscope/sim/program/ops/activation.h>

namespace amp::kernels {

struct Relu {
    AMPSCOPE_KERNEL double value(double x) { return x > 0 || x != x ? x : 0; }
    AMPSCOPE_KERNEL double derivative(double x) { return x > 0 ? 1 : 0; }
};

struct GeluTanh {
    AMPSCOPE_KERNEL double value(double x) { return math::gelu_tanh(x); }
    AMPSCOPE_KERNEL double derivative(double x) { return math::gelu_tanh_derivative(x); }
    AMPSCOPE_KERNEL double quick_value(double x) { return math::estimate::gelu_tanh(x); }
    AMPSCOPE_KERNEL double quick_derivative(double x) { return math::estimate::gelu_tanh_derivative(x); }
};

struct Gelu {
    AMPSCOPE_KERNEL double value(double x) { return math::gelu(x); }
    AMPSCOPE_KERNEL double derivative(double x) { return math::gelu_derivative(x); }
    AMPSCOPE_KERNEL double quick_value(double x) { return math::estimate::gelu(x); }
    AMPSCOPE_KERNEL double quick_derivative(double x) { return math::estimate::gelu_derivative(x); }
};

struct Silu {
    AMPSCOPE_KERNEL double value(double x) { return math::silu(x); }
    AMPSCOPE_KERNEL double derivative(double x) { return math::silu_derivative(x); }
    AMPSCOPE_KERNEL double quick_value(double x) { return math::estimate::silu(x); }
    AMPSCOPE_KERNEL double quick_derivative(double x) { return math::estimate::silu_derivative(x); }
};

// The derivatives of these take the result, as facts_of() says.
struct Tanh {
    AMPSCOPE_KERNEL double value(double x) { return math::tanh(x); }
    AMPSCOPE_KERNEL double derivative(double y) { return 1 - y * y; }
};

struct Sigmoid {
    AMPSCOPE_KERNEL double value(double x) { return math::sigmoid(x); }
    AMPSCOPE_KERNEL double derivative(double y) { return y * (1 - y); }
};

/// wide[i] = exact(i), or quick(i) where that rounds alike.
template <class Exact, class Quick>
AMPSCOPE_INLINE void estimated(std::int64_t n, double* wide, const Exact& exact, const Quick& quick) {
    std::int64_t done = 0;
#if !defined(__CUDACC__) // where a fused multiply-add is one instruction, and loops are vectorised
    constexpr std::int64_t group = 32;
    for (; has_fma() && done + group <= n; done += group) {
        std::int64_t doubts = 0;
        for (std::int64_t i = done; i < done + group; ++i) {
            wide[i] = quick(i);
            doubts += !math::estimate::decides_rounding(wide[i]);
        }
        if (doubts > group / 8) break; // zeros, or a range that has no estimates: more of them may follow
        if (doubts == 0) continue;
        for (std::int64_t i = done; i < done + group; ++i)
            if (!math::estimate::decides_rounding(wide[i])) wide[i] = exact(i);
    }
#endif
    for (std::int64_t i = done; i < n; ++i) wide[i] = exact(i);
}

template <class F>
struct Forward {
    AMPSCOPE_KERNEL void run(std::int64_t begin, std::int64_t n, double* wide, const float* in) {
        const auto exact = [=](std::int64_t i) { return F::value(in[begin + i]); };
        if constexpr (requires { F::quick_value(0.0); })
            return estimated(n, wide, exact, [=](std::int64_t i) { return F::quick_value(in[begin + i]); });
        for (std::int64_t i = 0; i < n; ++i) wide[i] = exact(i);
    }
};

template <class F>
struct Backward {
    AMPSCOPE_KERNEL void run(std::int64_t begin, std::int64_t n, double* wide, const float* saved, const float* grad) {
        const auto exact = [=](std::int64_t i) { return grad[begin + i] * F::derivative(saved[begin + i]); };
        if constexpr (requires { F::quick_derivative(0.0); })
            return estimated(n, wide, exact,
                             [=](std::int64_t i) { return grad[begin + i] * F::quick_derivative(saved[begin + i]); });
        for (std::int64_t i = 0; i < n; ++i) wide[i] = exact(i);
    }
};

/// Calls use(F{}) with the struct for that kind.
template <class Use>
void with_functions(op::ActivationKind kind, const Use& use) {
    switch (kind) {
    case op::ActivationKind::relu: return use(Relu{});
    case op::ActivationKind::gelu: return use(Gelu{});
    case op::ActivationKind::gelu_tanh: return use(GeluTanh{});
    case op::ActivationKind::tanh: return use(Tanh{});
    case op::ActivationKind::sigmoid: return use(Sigmoid{});
    case op::ActivationKind::silu: return use(Silu{});
    }
}

} // namespace amp::kernels

namespace amp::op {

template <class On>
void run(On& on, const Activation& op) {
    kernels::with_functions(op.kind, [&]<class F>(F) { map(on, kernels::Forward<F>{}, op.out, on.in(op.in)); });
}

template <class On>
void run(On& on, const ActivationBackward& op) {
    kernels::with_functions(
        op.kind, [&]<class F>(F) { map(on, kernels::Backward<F>{}, op.grad_in, on.in(op.saved), on.in(op.grad_out)); });
}

} // namespace amp::op

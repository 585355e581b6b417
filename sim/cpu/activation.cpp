#include <ampscope/formats/scalar_math_gelu.h>
#include <ampscope/sim/cpu/wide.h>

namespace amp {

namespace {

struct Relu {
    [[gnu::always_inline]] static double value(double x) { return x > 0 || x != x ? x : 0; }
    [[gnu::always_inline]] static double derivative(double x) { return x > 0 ? 1 : 0; }
};

struct GeluTanh {
    [[gnu::always_inline]] static double value(double x) { return math::gelu_tanh(x); }
    [[gnu::always_inline]] static double derivative(double x) { return math::gelu_tanh_derivative(x); }
};

struct Gelu {
    [[gnu::always_inline]] static double value(double x) { return math::gelu(x); }
    [[gnu::always_inline]] static double derivative(double x) { return math::gelu_derivative(x); }
};

// The derivatives of these take the result.
struct Tanh {
    [[gnu::always_inline]] static double value(double x) { return math::tanh(x); }
    [[gnu::always_inline]] static double derivative(double y) { return 1 - y * y; }
};

struct Sigmoid {
    [[gnu::always_inline]] static double value(double x) { return math::sigmoid(x); }
    [[gnu::always_inline]] static double derivative(double y) { return y * (1 - y); }
};

template <class F>
struct Forward {
    AMPSCOPE_KERNEL void run(std::int64_t begin, std::int64_t n, double* wide, const float* in) {
        for (std::int64_t i = 0; i < n; ++i) wide[i] = F::value(in[begin + i]);
    }
};

template <class F>
struct Backward {
    AMPSCOPE_KERNEL void run(std::int64_t begin, std::int64_t n, double* wide, const float* saved, const float* grad) {
        for (std::int64_t i = 0; i < n; ++i) wide[i] = grad[begin + i] * F::derivative(saved[begin + i]);
    }
};

template <template <class> class Kernel, class... Args>
void map(ActivationKind kind, Cpu& cpu, TensorId out, Args... args) {
    switch (kind) {
    case ActivationKind::relu: return cpu::map<Kernel<Relu>>(cpu, out, args...);
    case ActivationKind::gelu: return cpu::map<Kernel<Gelu>>(cpu, out, args...);
    case ActivationKind::gelu_tanh: return cpu::map<Kernel<GeluTanh>>(cpu, out, args...);
    case ActivationKind::tanh: return cpu::map<Kernel<Tanh>>(cpu, out, args...);
    case ActivationKind::sigmoid: return cpu::map<Kernel<Sigmoid>>(cpu, out, args...);
    }
}

} // namespace

void run(Cpu& cpu, const Activation& op) { map<Forward>(op.kind, cpu, op.out, cpu[op.in].data()); }

void run(Cpu& cpu, const ActivationBackward& op) {
    map<Backward>(op.kind, cpu, op.grad_in, cpu[op.saved].data(), cpu[op.grad_out].data());
}

} // namespace amp

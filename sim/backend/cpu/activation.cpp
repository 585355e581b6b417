#include <ampscope/sim/backend/cpu/detail/wide.h>
#include <ampscope/sim/backend/kernels/activation.h>

namespace amp::op {

using namespace kernels;

namespace {

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

} // namespace amp::op

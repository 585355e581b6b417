#include <ampscope/sim/backend/cuda/wide.cuh>
#include <ampscope/sim/backend/kernels/activation.h>

namespace amp::op {

using namespace kernels;

namespace {

template <template <class> class Kernel, class... Args>
void map(ActivationKind kind, Cuda& cuda, TensorId out, Args... args) {
    switch (kind) {
    case ActivationKind::relu: return cuda::map<Kernel<Relu>>(cuda, out, args...);
    case ActivationKind::gelu: return cuda::map<Kernel<Gelu>>(cuda, out, args...);
    case ActivationKind::gelu_tanh: return cuda::map<Kernel<GeluTanh>>(cuda, out, args...);
    case ActivationKind::tanh: return cuda::map<Kernel<Tanh>>(cuda, out, args...);
    case ActivationKind::sigmoid: return cuda::map<Kernel<Sigmoid>>(cuda, out, args...);
    }
}

} // namespace

void run(Cuda& cuda, const Activation& op) { map<Forward>(op.kind, cuda, op.out, cuda.in(op.in)); }

void run(Cuda& cuda, const ActivationBackward& op) {
    map<Backward>(op.kind, cuda, op.grad_in, cuda.in(op.saved), cuda.in(op.grad_out));
}

} // namespace amp::op

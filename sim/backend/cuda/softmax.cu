#include <ampscope/sim/backend/cuda/wide.cuh>
#include <ampscope/sim/backend/kernels/softmax.h>

namespace amp::op {

using namespace kernels;

void run(Cuda& cuda, const Softmax& op) { cuda::map_rows<SoftmaxKernel>(cuda, op.out, cuda.in(op.in), op.causal); }

void run(Cuda& cuda, const SoftmaxBackward& op) {
    cuda::map_rows<SoftmaxBackwardKernel>(cuda, op.grad_in, cuda.in(op.y), cuda.in(op.grad_out), op.causal);
}

} // namespace amp::op

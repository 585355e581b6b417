#include <ampscope/sim/backend/cpu/detail/wide.h>
#include <ampscope/sim/backend/kernels/softmax.h>

namespace amp::op {

using namespace kernels;

void run(Cpu& cpu, const Softmax& op) { cpu::map_rows<SoftmaxKernel>(cpu, op.out, cpu[op.in].data(), op.causal); }

void run(Cpu& cpu, const SoftmaxBackward& op) {
    cpu::map_rows<SoftmaxBackwardKernel>(cpu, op.grad_in, cpu[op.y].data(), cpu[op.grad_out].data(), op.causal);
}

} // namespace amp::op

#include <ampscope/sim/backend/cuda/wide.cuh>
#include <ampscope/sim/backend/kernels/pool.h>

namespace amp::op {

using namespace kernels;

void run(Cuda& cuda, const PoolBackward& op) {
    const PoolShape shape(cuda.info(op.in).shape, op.size);
    const float *const in = cuda.in(op.in), *const grad_out = cuda.in(op.grad_out);
    float* const grad_in = cuda.out(op.grad_in);
    const bool max = op.kind == PoolKind::max;
    cuda::each(cuda.device(), cuda.info(op.grad_in).count(), [=] AMPSCOPE_DEVICE(std::int64_t i) { grad_in[i] = 0; });
    cuda::each(cuda.device(), cuda.info(op.grad_out).count(), [=] AMPSCOPE_DEVICE(std::int64_t i) {
        const std::int64_t corner = shape.corner(i), pixels = shape.size * shape.size;
        if (max) grad_in[corner + shape.largest(in + corner)] = grad_out[i];
        for (std::int64_t j = 0; !max && j < pixels; ++j)
            grad_in[corner + shape.offset(j)] = static_cast<float>(grad_out[i] / static_cast<double>(pixels));
    });
    cuda::round_in_place(cuda, op.grad_in);
}

} // namespace amp::op

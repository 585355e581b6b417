#include <ampscope/sim/backend/cuda/wide.cuh>

namespace amp::op {

void run(Cuda& cuda, const Embedding& op) {
    const float *const weight = cuda.in(op.weight), *const indices = cuda.in(op.indices);
    const std::int64_t width = cuda.info(op.weight).shape[1];
    const cuda::Output to = cuda::output(cuda, op.out);
    cuda::each(cuda.device(), cuda.info(op.out).count(), [=] AMPSCOPE_DEVICE(std::int64_t i) {
        to.put(i, weight[static_cast<std::int64_t>(indices[i / width]) * width + i % width]);
    });
}

/// One thread for each column: it adds the gradients of uses in their order.
void run(Cuda& cuda, const EmbeddingBackward& op) {
    const float *const indices = cuda.in(op.indices), *const grad = cuda.in(op.grad_out);
    const std::int64_t width = cuda.info(op.grad_weight).shape[1], uses = cuda.info(op.indices).count(),
                       entries = cuda.info(op.grad_weight).shape[0];
    float* const out = cuda.out(op.grad_weight);
    cuda::each(cuda.device(), width, [=] AMPSCOPE_DEVICE(std::int64_t j) {
        for (std::int64_t e = 0; e < entries; ++e) out[e * width + j] = 0;
        for (std::int64_t u = 0; u < uses; ++u)
            out[static_cast<std::int64_t>(indices[u]) * width + j] += grad[u * width + j];
    });
    cuda::round_in_place(cuda, op.grad_weight);
}

} // namespace amp::op

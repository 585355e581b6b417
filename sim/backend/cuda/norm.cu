#include <ampscope/sim/backend/cuda/wide.cuh>
#include <ampscope/sim/backend/kernels/norm.h>

namespace amp::op {

using namespace kernels;

namespace {

/// Adds up one number of all blocks of rows, in order.
struct SumOfBlocks {
    cuda::Output to;
    const double* sums;
    std::int64_t blocks, stride;

    AMPSCOPE_DEVICE void operator()(std::int64_t i) const {
        double sum = sums[i];
        for (std::int64_t b = 1; b < blocks; ++b) sum += sums[b * stride + i];
        to.put(i, sum);
    }
};

/// Sums over blocks of 32 rows, one thread for each block; then over the blocks, one thread for each number.
void parameter_gradients(Cuda& cuda, const NormBackward& op) {
    constexpr std::int64_t rows_at_once = 32;
    const std::int64_t n = cuda.info(op.in).shape.back(), rows = cuda.info(op.in).count() / n;
    const std::int64_t blocks = (rows + rows_at_once - 1) / rows_at_once;
    const float *const x = cuda.in(op.in), *const g = cuda.in(op.grad_out);
    const DeviceArray<double> partial(cuda.device(), static_cast<std::size_t>(2 * blocks * n));
    double* const sums = partial.data();
    const NormKind kind = op.kind;
    const double eps = op.eps;
    cuda::each(cuda.device(), blocks, [=] AMPSCOPE_DEVICE(std::int64_t b) {
        double* const to = sums + 2 * b * n;
        for (std::int64_t r = b * rows_at_once; r < rows && r < (b + 1) * rows_at_once; ++r)
            ParameterKernel::run(x + r * n, g + r * n, n, kind, eps, to, to + n);
    });
    const auto total = [&](TensorId id, std::int64_t offset) {
        if (!id) return;
        const cuda::Output to = cuda::output(cuda, id);
        cuda::each(cuda.device(), n, SumOfBlocks{to, sums + offset, blocks, 2 * n});
    };
    total(op.grad_weight, 0);
    total(op.grad_bias, n);
}

} // namespace

void run(Cuda& cuda, const NormBackward& op) {
    if (op.grad_in)
        map_rows(cuda, BackwardKernel{}, op.grad_in, cuda.in(op.in), cuda.in(op.weight), cuda.in(op.grad_out), op.kind,
                 op.eps);
    if (op.grad_weight || op.grad_bias) parameter_gradients(cuda, op);
}

} // namespace amp::op

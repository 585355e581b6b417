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
    const std::int64_t blocks = (rows + rows_at_once - 1) / rows_at_once, parameters = cuda.info(op.weight).count();
    const float *const x = cuda.in(op.in), *const g = cuda.in(op.grad_out);
    const DeviceArray<double> partial(cuda.device(), static_cast<std::size_t>(2 * blocks * parameters));
    double* const sums = partial.data();
    const NormKind kind = op.kind;
    const double eps = op.eps;
    const NormRows of_rows = op.rows;
    cuda::each(cuda.device(), blocks, [=] AMPSCOPE_DEVICE(std::int64_t b) {
        double* const to = sums + 2 * b * parameters;
        for (std::int64_t r = b * rows_at_once; r < rows && r < (b + 1) * rows_at_once; ++r)
            ParameterKernel::run(r, n, x, g, kind, eps, of_rows, to, to + parameters);
    });
    const auto total = [&](TensorId id, std::int64_t offset) {
        if (!id) return;
        const cuda::Output to = cuda::output(cuda, id);
        cuda::each(cuda.device(), parameters, SumOfBlocks{to, sums + offset, blocks, 2 * parameters});
    };
    total(op.grad_weight, 0);
    total(op.grad_bias, parameters);
}

} // namespace

void run(Cuda& cuda, const NormBackward& op) {
    if (op.grad_in)
        map_rows(cuda, BackwardKernel{}, op.grad_in, cuda.in(op.in), cuda.in(op.weight), cuda.in(op.grad_out), op.kind,
                 op.eps, op.rows);
    if (op.grad_weight || op.grad_bias) parameter_gradients(cuda, op);
}

} // namespace amp::op

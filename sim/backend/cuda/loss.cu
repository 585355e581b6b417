#include <ampscope/sim/backend/cuda/wide.cuh>
#include <ampscope/sim/backend/kernels/loss.h>

namespace amp::op {

using namespace kernels;

namespace {

AMPSCOPE_INLINE std::int64_t rows_that_count(const float* targets, std::int64_t rows) {
    std::int64_t count = 0;
    for (std::int64_t i = 0; i < rows; ++i) count += targets[i] >= 0 ? 1 : 0;
    return count;
}

} // namespace

void run(Cuda& cuda, const CrossEntropy& op) {
    const std::int64_t width = cuda.info(op.logits).shape.back(), rows = cuda.info(op.targets).count();
    const float *const logits = cuda.in(op.logits), *const targets = cuda.in(op.targets);
    const LossTerms terms = terms_now(op.terms, cuda.context.training);
    const DeviceArray<double> scratch(cuda.device(), static_cast<std::size_t>(rows * width)),
        losses(cuda.device(), static_cast<std::size_t>(rows));
    double *const wide = scratch.data(), *const loss = losses.data();
    cuda::each(cuda.device(), rows, [=] AMPSCOPE_DEVICE(std::int64_t row) {
        if (!(targets[row] >= 0)) return;
        const float* const x = logits + row * width;
        CrossEntropyKernel::run(x, width, wide + row * width, static_cast<std::int64_t>(targets[row]), terms,
                                loss + row);
    });
    const cuda::Output to = cuda::output(cuda, op.out);
    cuda::each(cuda.device(), 1, [=] AMPSCOPE_DEVICE(std::int64_t) {
        double sum = 0;
        for (std::int64_t row = 0; row < rows; ++row)
            if (targets[row] >= 0) sum += loss[row];
        to.put(0, sum / static_cast<double>(rows_that_count(targets, rows)));
    });
}

void run(Cuda& cuda, const CrossEntropyBackward& op) {
    const float *const grad = cuda.in(op.grad_out), *const targets = cuda.in(op.targets);
    const std::int64_t rows = cuda.info(op.targets).count(), width = cuda.info(op.grad_in).shape.back();
    const DeviceArray<double> factors(cuda.device(), 1), scratch(cuda.device(), static_cast<std::size_t>(rows * width));
    double *const factor = factors.data(), *const wide = scratch.data();
    cuda::each(cuda.device(), 1, [=] AMPSCOPE_DEVICE(std::int64_t) {
        *factor = grad[0] / static_cast<double>(rows_that_count(targets, rows));
    });
    const float* const logits = cuda.in(op.logits);
    const LossTerms terms = terms_now(op.terms, cuda.context.training);
    const cuda::Output to = cuda::output(cuda, op.grad_in);
    cuda::each(cuda.device(), rows, [=] AMPSCOPE_DEVICE(std::int64_t row) {
        double* const own = wide + row * width;
        CrossEntropyBackwardKernel::run(row, width, own, logits, targets, *factor, terms);
        for (std::int64_t i = 0; i < width; ++i) to.put(row * width + i, own[i]);
    });
}

void run(Cuda& cuda, const MseLoss& op) {
    const float *const in = cuda.in(op.in), *const targets = cuda.in(op.targets);
    const std::int64_t count = cuda.info(op.in).count();
    const cuda::Output to = cuda::output(cuda, op.out);
    cuda::each(cuda.device(), 1, [=] AMPSCOPE_DEVICE(std::int64_t) {
        double sum = 0;
        for (std::int64_t i = 0; i < count; ++i) {
            const double d = static_cast<double>(in[i]) - targets[i];
            sum += d * d;
        }
        to.put(0, sum / static_cast<double>(count));
    });
}

void run(Cuda& cuda, const MseLossBackward& op) {
    const float *const in = cuda.in(op.in), *const targets = cuda.in(op.targets), *const grad = cuda.in(op.grad_out);
    const auto count = static_cast<double>(cuda.info(op.in).count());
    const cuda::Output to = cuda::output(cuda, op.grad_in);
    cuda::each(cuda.device(), cuda.info(op.in).count(), [=] AMPSCOPE_DEVICE(std::int64_t i) {
        double wide = 0;
        MseBackwardKernel::run(i, 1, &wide, in, targets, 2.0 * grad[0] / count);
        to.put(i, wide);
    });
}

void run(Cuda& cuda, const LossGradient& op) {
    const cuda::Output to = cuda::output(cuda, op.out);
    const double scale = cuda.context.loss_scale, parts = cuda.context.micro_batches;
    cuda::each(cuda.device(), 1, [=] AMPSCOPE_DEVICE(std::int64_t) {
        to.put(0, scale);
        to.put(0, to.data[0] / parts);
    });
}

} // namespace amp::op

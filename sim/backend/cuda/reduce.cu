#include <ampscope/sim/backend/cuda/wide.cuh>
#include <ampscope/sim/backend/kernels/reduce.h>

namespace amp::op {

using namespace kernels;

void run(Cuda& cuda, const Reduce& op) {
    const std::int64_t results = cuda.info(op.out).count(), columns = results / op.batch;
    const std::int64_t rows = cuda.info(op.in).count() / results;
    const float* const in = cuda.in(op.in);
    const cuda::Output to = cuda::output(cuda, op.out);
    const FormatSpec accumulate = op.accumulate;
    const bool mean = op.kind == ReduceKind::mean;
    cuda::each(cuda.device(), results, [=] AMPSCOPE_DEVICE(std::int64_t at) {
        const float* const column = in + at / columns * rows * columns + at % columns;
        float sum = 0;
        for (std::int64_t i = 0; i < rows; ++i)
            sum = quantize(accumulate, static_cast<double>(sum) + column[i * columns]);
        to.put(at, mean ? sum / static_cast<double>(rows) : static_cast<double>(sum));
    });
}

} // namespace amp::op

#include <ampscope/sim/backend/cuda/wide.cuh>
#include <ampscope/sim/backend/kernels/gradient.h>

#include <cmath>

namespace amp::op {

using namespace kernels;

void run(Cuda& cuda, const CheckFinite& op) {
    const DeviceArray<std::uint32_t> flag(cuda.device(), 1);
    std::uint32_t* const found = flag.data();
    for (const TensorId id : op.gradients) {
        const float* const x = cuda.in(id);
        cuda::each(cuda.device(), cuda.info(id).count(), [=] AMPSCOPE_DEVICE(std::int64_t i) {
            if (!(x[i] - x[i] == 0)) cuda::atomic_set(*found);
        });
    }
    cuda.found_inf = cuda.found_inf || flag.read()[0] != 0;
}

/// One thread for each lane of lane_sum(); the squares of the norms are added in the order of the gradients.
void run(Cuda& cuda, const GlobalNorm& op) {
    const DeviceArray<double> memory(cuda.device(), 17);
    double *const lanes = memory.data(), *const total = lanes + 16;
    for (const TensorId id : op.gradients) {
        const float* const x = cuda.in(id);
        const std::int64_t count = cuda.info(id).count();
        const FormatSpec format = cuda.info(id).format;
        cuda::each(cuda.device(), 16, [=] AMPSCOPE_DEVICE(std::int64_t lane) {
            double sum = 0;
            for (std::int64_t i = lane; i < count; i += 16) sum += static_cast<double>(x[i]) * x[i];
            lanes[lane] = sum;
        });
        cuda::each(cuda.device(), 1, [=] AMPSCOPE_DEVICE(std::int64_t) {
            double own[16];
            for (int l = 0; l < 16; ++l) own[l] = lanes[l];
            const double norm = quantize(format, std::sqrt(lane_total(own)));
            *total += norm * norm;
        });
    }
    const cuda::Output to = cuda::output(cuda, op.norm);
    cuda::each(cuda.device(), 1, [=] AMPSCOPE_DEVICE(std::int64_t) { to.put(0, std::sqrt(*total)); });
}

void run(Cuda& cuda, const Clip& op) {
    const FormatSpec f = cuda.info(op.norm).format;
    const float *const norm = cuda.in(op.norm), *const x = cuda.in(op.gradient);
    const double max_norm = op.max_norm;
    const cuda::Output to = cuda::output(cuda, op.gradient);
    cuda::each(cuda.device(), cuda.info(op.gradient).count(), [=] AMPSCOPE_DEVICE(std::int64_t i) {
        to.put(i, x[i] * static_cast<double>(clip_factor(f, norm[0], max_norm)));
    });
}

} // namespace amp::op

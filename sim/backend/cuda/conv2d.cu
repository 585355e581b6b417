#include <ampscope/sim/backend/cuda/wide.cuh>

namespace amp::op {

void run(Cuda& cuda, const Im2Col& op) {
    const ConvGeometry g = op.geometry;
    const float* const in = cuda.in(op.in);
    float* const out = cuda.out(op.out);
    cuda::each(cuda.device(), g.patches() * g.patch_size(), [=] AMPSCOPE_DEVICE(std::int64_t i) {
        const std::int64_t patch = i / g.patch_size(), at = i % g.patch_size(), c = at % g.channels;
        const std::int64_t y =
            patch / g.out_width() % g.out_height() * g.stride - g.padding + at / (g.channels * g.kernel);
        const std::int64_t x = patch % g.out_width() * g.stride - g.padding + at / g.channels % g.kernel;
        const std::int64_t image = patch / (g.out_width() * g.out_height());
        const bool inside = y >= 0 && y < g.height && x >= 0 && x < g.width;
        out[i] = inside ? in[((image * g.height + y) * g.width + x) * g.channels + c] : 0.0F;
    });
}

/// One thread for each element of the image: it adds its occurrences in patches, in their order.
void run(Cuda& cuda, const Col2Im& op) {
    const ConvGeometry g = op.geometry;
    const float* const in = cuda.in(op.in);
    const cuda::Output to = cuda::output(cuda, op.out);
    cuda::each(cuda.device(), g.batch * g.height * g.width * g.channels, [=] AMPSCOPE_DEVICE(std::int64_t i) {
        const std::int64_t c = i % g.channels, x = i / g.channels % g.width + g.padding;
        const std::int64_t y = i / (g.channels * g.width) % g.height + g.padding;
        const std::int64_t image = i / (g.channels * g.width * g.height);
        float sum = 0;
        for (std::int64_t oy = 0; oy < g.out_height(); ++oy) {
            const std::int64_t ky = y - oy * g.stride;
            if (ky < 0 || ky >= g.kernel) continue;
            for (std::int64_t ox = 0; ox < g.out_width(); ++ox) {
                const std::int64_t kx = x - ox * g.stride;
                if (kx < 0 || kx >= g.kernel) continue;
                const std::int64_t patch = (image * g.out_height() + oy) * g.out_width() + ox;
                sum += in[patch * g.patch_size() + (ky * g.kernel + kx) * g.channels + c];
            }
        }
        to.put(i, sum);
    });
}

} // namespace amp::op

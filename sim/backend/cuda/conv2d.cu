#include <ampscope/sim/backend/cuda/wide.cuh>

namespace amp::op {

namespace {

/// Calls visit(position of the kernel, row or column of the kernel) for each time that the kernel takes pixel `at` of
/// an axis, in the order of the positions: the kernel's last row is the first to reach a pixel.
template <class Visit>
AMPSCOPE_DEVICE void for_each_use(const ConvAxis& axis, std::int64_t positions, std::int64_t at, const Visit& visit) {
    for (std::int64_t place = axis.kernel - 1; place >= 0; --place) {
        const std::int64_t begin = at + axis.padding - place * axis.dilation; // of the kernel, from the padding's
        const std::int64_t position = axis.stride == 1 ? begin : begin / axis.stride;
        if (begin >= 0 && position * axis.stride == begin && position < positions) visit(position, place);
    }
}

} // namespace

void run(Cuda& cuda, const Im2Col& op) {
    const ConvGeometry g = op.geometry;
    const float* const in = cuda.in(op.in);
    float* const out = cuda.out(op.out);
    const std::int64_t channels = g.group_channels(), size = g.patches() * g.patch_size();
    cuda::each(cuda.device(), g.groups * size, [=] AMPSCOPE_DEVICE(std::int64_t i) {
        const ConvAxis &v = g.vertical, &h = g.horizontal;
        const std::int64_t patch = i % size / g.patch_size(), at = i % g.patch_size();
        const std::int64_t c = i / size * channels + at % channels;
        const std::int64_t row = at / (channels * h.kernel), column = at / channels % h.kernel;
        const std::int64_t y = patch / g.out_width() % g.out_height() * v.stride - v.padding + row * v.dilation;
        const std::int64_t x = patch % g.out_width() * h.stride - h.padding + column * h.dilation;
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
    const std::int64_t height = g.out_height(), width = g.out_width();
    const std::int64_t channels = g.group_channels(), size = g.patches() * g.patch_size();
    cuda::each(cuda.device(), g.batch * g.height * g.width * g.channels, [=] AMPSCOPE_DEVICE(std::int64_t i) {
        const std::int64_t c = i % g.channels, x = i / g.channels % g.width, y = i / (g.channels * g.width) % g.height;
        const std::int64_t image = i / (g.channels * g.width * g.height);
        const float* const group = in + c / channels * size + c % channels;
        float sum = 0;
        for_each_use(g.vertical, height, y, [&](std::int64_t down, std::int64_t row) {
            for_each_use(g.horizontal, width, x, [&](std::int64_t across, std::int64_t column) {
                const std::int64_t patch = (image * height + down) * width + across;
                sum += group[patch * g.patch_size() + (row * g.horizontal.kernel + column) * channels];
            });
        });
        to.put(i, sum);
    });
}

} // namespace amp::op

#include <ampscope/sim/backend/cuda/wide.cuh>

namespace amp::op {

void run(Cuda&, const View&) {}

namespace {

/// Extents of out and, for each of its axes, the distance in `in` between neighbouring elements.
struct Strides {
    std::int64_t extent[4]{1, 1, 1, 1}, stride[4]{0, 0, 0, 0};
};

} // namespace

void run(Cuda& cuda, const Transpose& op) {
    const Shape &from = cuda.info(op.in).shape, &to = cuda.info(op.out).shape;
    const std::size_t rank = from.size(), first = 4 - rank;
    Strides s;
    for (std::size_t i = 0; i < rank; ++i) {
        s.extent[first + i] = to[i];
        s.stride[first + i] = 1;
        for (std::size_t j = static_cast<std::size_t>(op.order[i]) + 1; j < rank; ++j) s.stride[first + i] *= from[j];
    }
    const float* const in = cuda.in(op.in);
    float* const out = cuda.out(op.out);
    cuda::each(cuda.device(), cuda.info(op.out).count(), [=] AMPSCOPE_DEVICE(std::int64_t i) {
        std::int64_t at = 0;
        for (std::int64_t axis = 3, rest = i; axis >= 0; rest /= s.extent[axis], --axis)
            at += rest % s.extent[axis] * s.stride[axis];
        out[i] = in[at];
    });
}

} // namespace amp::op

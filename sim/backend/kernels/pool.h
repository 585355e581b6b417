// Pooling, window by window.
#pragma once

#include <ampscope/sim/backend/kernels/kernel.h>
#include <ampscope/sim/base/tensor.h>
#include <ampscope/sim/program/ops/pool.h>

namespace amp::kernels {

struct PoolShape {
    std::int64_t height, width, channels, out_height, out_width, size;

    PoolShape(const Shape& in, std::int64_t window)
        : height(in[1]), width(in[2]), channels(in[3]), out_height(height / window), out_width(width / window),
          size(window) {}

    /// The offset of the first pixel of the window that belongs to element i of the result.
    [[nodiscard]] constexpr std::int64_t corner(std::int64_t i) const {
        const std::int64_t c = i % channels, x = i / channels % out_width, y = i / (channels * out_width) % out_height;
        const std::int64_t image = i / (channels * out_width * out_height);
        return ((image * height + y * size) * width + x * size) * channels + c;
    }
    /// The offset of pixel j of a window from its first pixel.
    [[nodiscard]] constexpr std::int64_t offset(std::int64_t j) const {
        return (j / size * width + j % size) * channels;
    }

    /// The offset of the first pixel of a window that is the largest; a NaN counts as the largest.
    [[nodiscard]] constexpr std::int64_t largest(const float* window) const {
        std::int64_t best = 0;
        for (std::int64_t j = 1; j < size * size; ++j) {
            const float x = window[offset(j)], y = window[best];
            if (y == y && (x > y || x != x)) best = offset(j);
        }
        return best;
    }
};

struct PoolKernel {
    AMPSCOPE_KERNEL void run(std::int64_t begin, std::int64_t n, double* wide, const float* in, PoolShape shape,
                             bool max) {
        for (std::int64_t i = 0; i < n; ++i) {
            const float* const window = in + shape.corner(begin + i);
            if (max) {
                wide[i] = window[shape.largest(window)];
                continue;
            }
            double sum = 0;
            for (std::int64_t j = 0; j < shape.size * shape.size; ++j) sum += window[shape.offset(j)];
            wide[i] = sum / static_cast<double>(shape.size * shape.size);
        }
    }
};

} // namespace amp::kernels

namespace amp::op {

template <class On>
void run(On& on, const Pool& op) {
    const kernels::PoolShape shape(on.info(op.in).shape, op.size);
    map(on, kernels::PoolKernel{}, op.out, on.in(op.in), shape, op.kind == PoolKind::max);
}

} // namespace amp::op

// Pooling, window by window.
#pragma once

#include <ampscope/sim/backend/kernels/kernel.h>
#include <ampscope/sim/base/tensor.h>
#include <ampscope/sim/program/ops/pool.h>

namespace amp::kernels {

/// Whether x takes the place of the largest number so far; a NaN counts as the largest, and the first one stays.
constexpr bool is_larger(double x, double largest) { return largest == largest && !(x <= largest); }

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

    /// How many of the n elements of the result from element i on are channels of one pixel.
    [[nodiscard]] constexpr std::int64_t side_by_side(std::int64_t i, std::int64_t n) const {
        const std::int64_t left = channels - i % channels;
        return left < n ? left : n;
    }

    /// The offset of the first pixel of a window that is the largest; a NaN counts as the largest.
    [[nodiscard]] constexpr std::int64_t largest(const float* window) const {
        std::int64_t best = 0;
        for (std::int64_t j = 1; j < size * size; ++j) {
            if (is_larger(window[offset(j)], window[best])) best = offset(j);
        }
        return best;
    }
};

struct PoolKernel {
    AMPSCOPE_KERNEL void run(std::int64_t begin, std::int64_t n, double* wide, const float* in, PoolShape shape,
                             bool max) {
        const std::int64_t pixels = shape.size * shape.size;
        for (std::int64_t i = 0, count = 0; i < n; i += count) {
            count = shape.side_by_side(begin + i, n - i);
            const float* const corner = in + shape.corner(begin + i);
            double* const to = wide + i;
            for (std::int64_t c = 0; c < count; ++c) to[c] = max ? corner[c] : 0.0 + corner[c]; // a sum begins at +0
            for (std::int64_t j = 1; j < pixels; ++j) {
                const float* const pixel = corner + shape.offset(j);
                if (max)
                    for (std::int64_t c = 0; c < count; ++c) to[c] = is_larger(pixel[c], to[c]) ? pixel[c] : to[c];
                else
                    for (std::int64_t c = 0; c < count; ++c) to[c] += pixel[c];
            }
            if (!max)
                for (std::int64_t c = 0; c < count; ++c) to[c] /= static_cast<double>(pixels);
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

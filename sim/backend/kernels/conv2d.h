// Which elements of an image belong to a patch.
#pragma once

#include <ampscope/sim/backend/kernels/kernel.h>
#include <ampscope/sim/program/ops/conv2d.h>

namespace amp::kernels {

/// Calls visit(offset in the patch, offset in the image) for each run of `channels` numbers that patch p takes from the
/// image.
template <class Visit>
constexpr void for_patch(const op::ConvGeometry& g, std::int64_t p, const Visit& visit) {
    const std::int64_t x0 = p % g.out_width() * g.stride - g.padding;
    const std::int64_t y0 = p / g.out_width() % g.out_height() * g.stride - g.padding;
    const std::int64_t image = p / (g.out_width() * g.out_height());
    for (std::int64_t i = 0; i < g.kernel; ++i)
        for (std::int64_t j = 0; j < g.kernel; ++j) {
            const std::int64_t y = y0 + i, x = x0 + j;
            const bool inside = y >= 0 && y < g.height && x >= 0 && x < g.width;
            visit((i * g.kernel + j) * g.channels, inside ? ((image * g.height + y) * g.width + x) * g.channels : -1);
        }
}

} // namespace amp::kernels

#include <ampscope/sim/backend/cpu/detail/wide.h>

#include <algorithm>

namespace amp::op {

void run(Cpu&, const View&) {}

void run(Cpu& cpu, const Transpose& op) {
    // Extents of out and, for each of its axes, the distance in `in` between neighbouring elements.
    std::array<std::int64_t, 4> extent{1, 1, 1, 1}, stride{0, 0, 0, 0}, in_stride{1, 1, 1, 1};
    const Shape &from = cpu.info(op.in).shape, &to = cpu.info(op.out).shape;
    const std::size_t rank = from.size(), first = 4 - rank;
    for (std::size_t i = rank; i-- > 1;) in_stride[i - 1] = in_stride[i] * from[i];
    for (std::size_t i = 0; i < rank; ++i) {
        extent[first + i] = to[i];
        stride[first + i] = in_stride[static_cast<std::size_t>(op.order[i])];
    }
    const float* const in = cpu[op.in].data();
    float* const out = cpu[op.out].data();
    const std::int64_t inner = extent[2] * extent[3];
    for_each_chunk(static_cast<std::uint64_t>(extent[0] * extent[1]), cpu::lines_at_once(inner), cpu.threads(),
                   [&](std::uint64_t begin, std::uint64_t end) {
                       for (auto p = static_cast<std::int64_t>(begin); p < static_cast<std::int64_t>(end); ++p) {
                           const float* const x = in + p / extent[1] * stride[0] + p % extent[1] * stride[1];
                           float* y = out + p * inner;
                           for (std::int64_t i = 0; i < extent[2]; ++i)
                               if (stride[3] == 1) y = std::copy_n(x + i * stride[2], extent[3], y);
                               else
                                   for (std::int64_t j = 0; j < extent[3]; ++j) *y++ = x[i * stride[2] + j * stride[3]];
                       }
                   });
}

} // namespace amp::op

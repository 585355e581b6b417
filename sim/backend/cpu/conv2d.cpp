#include <ampscope/sim/backend/cpu/detail/wide.h>
#include <ampscope/sim/backend/kernels/conv2d.h>

namespace amp::op {

using namespace kernels;

void run(Cpu& cpu, const Im2Col& op) {
    const ConvGeometry& g = op.geometry;
    const float* const in = cpu[op.in].data();
    float* const out = cpu[op.out].data();
    for_each_chunk(static_cast<std::uint64_t>(g.patches()), cpu::lines_at_once(g.patch_size()), cpu.threads(),
                   [&](std::uint64_t begin, std::uint64_t end) {
                       for (auto p = static_cast<std::int64_t>(begin); p < static_cast<std::int64_t>(end); ++p) {
                           float* const to = out + p * g.patch_size();
                           for_patch(g, p, [&](std::int64_t at, std::int64_t pixel) {
                               if (pixel < 0) std::fill_n(to + at, g.channels, 0.0F);
                               else std::copy_n(in + pixel, g.channels, to + at);
                           });
                       }
                   });
}

void run(Cpu& cpu, const Col2Im& op) {
    const ConvGeometry& g = op.geometry;
    const float* const in = cpu[op.in].data();
    float* const out = cpu[op.out].data();
    const std::int64_t pixels = g.height * g.width * g.channels, patches = g.out_height() * g.out_width();
    for_each_chunk(static_cast<std::uint64_t>(g.batch), cpu::lines_at_once(pixels), cpu.threads(),
                   [&](std::uint64_t begin, std::uint64_t end) {
                       const auto first = static_cast<std::int64_t>(begin), last = static_cast<std::int64_t>(end);
                       std::fill(out + first * pixels, out + last * pixels, 0.0F);
                       for (std::int64_t p = first * patches; p < last * patches; ++p)
                           for_patch(g, p, [&](std::int64_t at, std::int64_t pixel) {
                               if (pixel < 0) return;
                               const float* const from = in + p * g.patch_size() + at;
                               for (std::int64_t c = 0; c < g.channels; ++c) out[pixel + c] += from[c];
                           });
                       cpu::round_in_place(cpu, op.out, first * pixels, (last - first) * pixels);
                   });
}

} // namespace amp::op

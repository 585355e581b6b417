#include <ampscope/sim/backend/cpu/detail/wide.h>

namespace amp::op {

namespace {

/// Calls visit(offset in the patches, offset in the images, count) for the runs of pixels that the kernel takes at the
/// positions of one line, which is a row of positions in an image. The second is -1 beyond the border.
template <class Visit>
void for_pixels(const ConvGeometry& g, std::int64_t line, const Visit& visit) {
    const ConvAxis &v = g.vertical, &h = g.horizontal;
    const std::int64_t image = line / g.out_height(), top = line % g.out_height() * v.stride - v.padding;
    const std::int64_t positions = g.out_width();
    std::int64_t left = -h.padding, at = line * positions * v.kernel * h.kernel;
    // The number of columns of the kernel that lie before column x of the image.
    const auto columns_before = [&](std::int64_t x) {
        const std::int64_t distance = x - left;
        return std::clamp<std::int64_t>(h.dilation == 1 ? distance : (distance + h.dilation - 1) / h.dilation, 0,
                                        h.kernel);
    };
    for (std::int64_t position = 0; position < positions; ++position, left += h.stride) {
        const std::int64_t begin = columns_before(0), end = columns_before(g.width);
        const std::int64_t run = h.dilation == 1 ? end - begin : 1;
        for (std::int64_t i = 0; i < v.kernel; ++i, at += h.kernel) {
            const std::int64_t y = top + i * v.dilation, first = (image * g.height + y) * g.width + left;
            if (y < 0 || y >= g.height || begin == end) {
                visit(at, -1, h.kernel);
                continue;
            }
            if (begin > 0) visit(at, -1, begin);
            for (std::int64_t j = begin; j < end; j += run) visit(at + j, first + j * h.dilation, run);
            if (end < h.kernel) visit(at + end, -1, h.kernel - end);
        }
    }
}

/// Neighbouring numbers of the patches: `count` times `length` of them, which begin `stride` numbers apart in the
/// images.
struct Runs {
    std::int64_t patches, image, count, length, stride; ///< image: offset there, or -1: beyond the border
};

/// Calls visit(runs) for the numbers that the kernel takes at the positions of one line, group after group.
template <class Visit>
void for_line(const ConvGeometry& g, std::int64_t line, const Visit& visit) {
    const std::int64_t channels = g.group_channels(), size = g.patches() * g.patch_size();
    for (std::int64_t group = 0; group < g.groups; ++group)
        for_pixels(g, line, [&](std::int64_t at, std::int64_t pixel, std::int64_t count) {
            const std::int64_t image = pixel < 0 ? -1 : pixel * g.channels + group * channels;
            const std::int64_t patches = group * size + at * channels;
            if (pixel < 0 || g.groups == 1) visit(Runs{patches, image, 1, count * channels, 0});
            else visit(Runs{patches, image, count, channels, g.channels});
        });
}

} // namespace

void run(Cpu& cpu, const Im2Col& op) {
    const ConvGeometry& g = op.geometry;
    const float* const in = cpu[op.in].data();
    float* const out = cpu[op.out].data();
    for_each_chunk(static_cast<std::uint64_t>(g.batch * g.out_height()),
                   cpu::lines_at_once(g.groups * g.out_width() * g.patch_size()), cpu.threads(),
                   [&](std::uint64_t begin, std::uint64_t end) {
                       for (auto line = static_cast<std::int64_t>(begin); line < static_cast<std::int64_t>(end); ++line)
                           for_line(g, line, [&](const Runs& r) {
                               float* const to = out + r.patches;
                               const float* const from = in + r.image;
                               if (r.image < 0) std::fill_n(to, r.length, 0.0F);
                               else if (r.length == 1)
                                   for (std::int64_t i = 0; i < r.count; ++i) to[i] = from[i * r.stride];
                               else
                                   for (std::int64_t i = 0; i < r.count; ++i)
                                       std::copy_n(from + i * r.stride, r.length, to + i * r.length);
                           });
                   });
}

void run(Cpu& cpu, const Col2Im& op) {
    const ConvGeometry& g = op.geometry;
    const float* const in = cpu[op.in].data();
    float* const out = cpu[op.out].data();
    const std::int64_t pixels = g.height * g.width * g.channels, lines = g.out_height();
    for_each_chunk(static_cast<std::uint64_t>(g.batch), cpu::lines_at_once(pixels), cpu.threads(),
                   [&](std::uint64_t begin, std::uint64_t end) {
                       const auto first = static_cast<std::int64_t>(begin), last = static_cast<std::int64_t>(end);
                       std::fill(out + first * pixels, out + last * pixels, 0.0F);
                       for (std::int64_t line = first * lines; line < last * lines; ++line)
                           for_line(g, line, [&](const Runs& r) {
                               if (r.image < 0) return;
                               const float* from = in + r.patches;
                               for (std::int64_t i = 0; i < r.count; ++i)
                                   for (std::int64_t j = 0; j < r.length; ++j)
                                       out[r.image + i * r.stride + j] += *from++;
                           });
                       cpu::round_in_place(cpu, op.out, first * pixels, (last - first) * pixels);
                   });
}

} // namespace amp::op

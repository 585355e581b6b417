#include <ampscope/sim/cpu/wide.h>

namespace amp {

namespace {

struct PoolShape {
    std::int64_t height, width, channels, out_height, out_width, size;

    PoolShape(const Cpu& cpu, TensorId in, std::int64_t window)
        : height(cpu.info(in).shape[1]), width(cpu.info(in).shape[2]), channels(cpu.info(in).shape[3]),
          out_height(height / window), out_width(width / window), size(window) {}

    /// The first pixel of the window of element `i` of the result.
    [[nodiscard]] std::int64_t corner(std::int64_t i) const {
        const std::int64_t c = i % channels, x = i / channels % out_width, y = i / (channels * out_width) % out_height;
        const std::int64_t image = i / (channels * out_width * out_height);
        return ((image * height + y * size) * width + x * size) * channels + c;
    }
    /// Pixel number j of a window, from its first.
    [[nodiscard]] std::int64_t offset(std::int64_t j) const { return (j / size * width + j % size) * channels; }

    /// The offset of the first pixel of a window that is the largest; a NaN is.
    [[nodiscard]] std::int64_t largest(const float* window) const {
        std::int64_t best = 0;
        for (std::int64_t j = 1; j < size * size; ++j) {
            const float x = window[offset(j)], y = window[best];
            if (y == y && (x > y || x != x)) best = offset(j);
        }
        return best;
    }
};

struct PoolKernel {
    AMPSCOPE_KERNEL void run(std::int64_t begin, std::int64_t n, double* wide, const float* in, const PoolShape* shape,
                             bool max) {
        for (std::int64_t i = 0; i < n; ++i) {
            const float* const window = in + shape->corner(begin + i);
            if (max) {
                wide[i] = window[shape->largest(window)];
                continue;
            }
            double sum = 0;
            for (std::int64_t j = 0; j < shape->size * shape->size; ++j) sum += window[shape->offset(j)];
            wide[i] = sum / static_cast<double>(shape->size * shape->size);
        }
    }
};

} // namespace

void run(Cpu& cpu, const Pool& op) {
    const PoolShape shape(cpu, op.in, op.size);
    cpu::map<PoolKernel>(cpu, op.out, cpu[op.in].data(), &shape, op.kind == PoolKind::max);
}

void run(Cpu& cpu, const PoolBackward& op) {
    const PoolShape shape(cpu, op.in, op.size);
    const std::span<const float> in = cpu[op.in], grad_out = cpu[op.grad_out];
    const std::span<float> grad_in = cpu[op.grad_in];
    std::ranges::fill(grad_in, 0.0F);
    const auto windows = static_cast<double>(op.size * op.size);
    cpu::for_elements(cpu, cpu.info(op.grad_out).count(), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
            const std::int64_t corner = shape.corner(i);
            const float g = grad_out[static_cast<std::size_t>(i)];
            if (op.kind == PoolKind::max) {
                grad_in[static_cast<std::size_t>(corner + shape.largest(in.data() + corner))] = g;
                continue;
            }
            for (std::int64_t j = 0; j < op.size * op.size; ++j)
                grad_in[static_cast<std::size_t>(corner + shape.offset(j))] = static_cast<float>(g / windows);
        }
    });
    cpu::for_elements(cpu, cpu.info(op.grad_in).count(), [&](std::int64_t begin, std::int64_t end) {
        cpu::round_in_place(cpu, op.grad_in, begin, end - begin);
    });
}

} // namespace amp

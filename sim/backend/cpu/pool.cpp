#include <ampscope/sim/backend/cpu/detail/wide.h>
#include <ampscope/sim/backend/kernels/pool.h>

namespace amp::op {

using namespace kernels;

namespace {

/// The gradients of elements [begin, end) of the result. Each stores to all pixels of its window.
struct PoolBackwardKernel {
    AMPSCOPE_KERNEL void run(std::int64_t begin, std::int64_t end, const float* in, const float* grad_out,
                             float* grad_in, PoolShape shape, bool max) {
        constexpr std::int64_t at_once = 64;
        const std::int64_t pixels = shape.size * shape.size;
        for (std::int64_t i = begin, n = 0; i < end; i += n) {
            n = std::min(shape.side_by_side(i, end - i), at_once);
            const std::int64_t corner = shape.corner(i);
            float largest[at_once], share[at_once];
            std::int32_t where[at_once];
            for (std::int64_t c = 0; c < n; ++c) {
                largest[c] = in[corner + c];
                where[c] = 0;
                share[c] = max ? grad_out[i + c] : static_cast<float>(grad_out[i + c] / static_cast<double>(pixels));
            }
            for (std::int64_t j = 1; j < pixels && max; ++j) {
                const float* const pixel = in + corner + shape.offset(j);
                for (std::int64_t c = 0; c < n; ++c) {
                    const bool larger = is_larger(pixel[c], largest[c]);
                    largest[c] = larger ? pixel[c] : largest[c];
                    where[c] = larger ? static_cast<std::int32_t>(j) : where[c];
                }
            }
            for (std::int64_t j = 0; j < pixels; ++j) {
                float* const to = grad_in + corner + shape.offset(j);
                for (std::int64_t c = 0; c < n; ++c) to[c] = !max || where[c] == j ? share[c] : 0;
            }
        }
    }
};

} // namespace

void run(Cpu& cpu, const PoolBackward& op) {
    const PoolShape shape(cpu.info(op.in).shape, op.size);
    const float *const in = cpu[op.in].data(), *const grad_out = cpu[op.grad_out].data();
    const std::span<float> grad_in = cpu[op.grad_in];
    std::ranges::fill(grad_in, 0.0F); // at the border, too, which belongs to no window
    cpu::for_elements(cpu, cpu.info(op.grad_out).count(), [&](std::int64_t begin, std::int64_t end) {
        dispatch<PoolBackwardKernel>(best_instruction_set(), begin, end, in, grad_out, grad_in.data(), shape,
                                     op.kind == PoolKind::max);
    });
    cpu::for_elements(cpu, cpu.info(op.grad_in).count(), [&](std::int64_t begin, std::int64_t end) {
        cpu::round_in_place(cpu, op.grad_in, begin, end - begin);
    });
}

} // namespace amp::op

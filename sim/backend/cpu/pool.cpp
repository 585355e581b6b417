#include <ampscope/sim/backend/cpu/detail/wide.h>
#include <ampscope/sim/backend/kernels/pool.h>

namespace amp::op {

using namespace kernels;

void run(Cpu& cpu, const PoolBackward& op) {
    const PoolShape shape(cpu.info(op.in).shape, op.size);
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

} // namespace amp::op

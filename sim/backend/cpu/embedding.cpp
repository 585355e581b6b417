#include <ampscope/sim/backend/cpu/detail/wide.h>

namespace amp::op {

void run(Cpu& cpu, const Embedding& op) {
    const std::span<const float> weight = cpu[op.weight], indices = cpu[op.indices];
    const std::span<float> out = cpu[op.out];
    const std::int64_t width = cpu.info(op.weight).shape[1];
    for (std::size_t i = 0; i < indices.size(); ++i)
        std::copy_n(weight.begin() + static_cast<std::int64_t>(indices[i]) * width, width,
                    out.begin() + static_cast<std::int64_t>(i) * width);
    cpu::for_elements(cpu, cpu.info(op.out).count(), [&](std::int64_t begin, std::int64_t end) {
        cpu::round_in_place(cpu, op.out, begin, end - begin);
    });
}

void run(Cpu& cpu, const EmbeddingBackward& op) {
    const std::span<const float> indices = cpu[op.indices], grad = cpu[op.grad_out];
    const std::span<float> out = cpu[op.grad_weight];
    const std::int64_t width = cpu.info(op.grad_weight).shape[1];
    std::ranges::fill(out, 0.0F);
    for (std::size_t i = 0; i < indices.size(); ++i) {
        const float* const from = grad.data() + static_cast<std::int64_t>(i) * width;
        float* const to = out.data() + static_cast<std::int64_t>(indices[i]) * width;
        for (std::int64_t j = 0; j < width; ++j) to[j] += from[j];
    }
    cpu::for_elements(cpu, cpu.info(op.grad_weight).count(), [&](std::int64_t begin, std::int64_t end) {
        cpu::round_in_place(cpu, op.grad_weight, begin, end - begin);
    });
}

} // namespace amp::op

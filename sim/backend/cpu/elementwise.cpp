#include <ampscope/sim/backend/cpu/detail/wide.h>
#include <ampscope/sim/backend/kernels/elementwise.h>

#include <cmath>

namespace amp::op {

using namespace kernels;

void run(Cpu& cpu, const Add& op) {
    cpu::map<BinaryKernel<false>>(cpu, op.out, cpu[op.a].data(), cpu[op.b].data(), cpu.info(op.b).count());
}

void run(Cpu& cpu, const Mul& op) {
    cpu::map<BinaryKernel<true>>(cpu, op.out, cpu[op.a].data(), cpu[op.b].data(), cpu.info(op.b).count());
}

void run(Cpu& cpu, const Scale& op) { cpu::map<ScaleKernel>(cpu, op.out, cpu[op.in].data(), op.factor); }

void run(Cpu& cpu, const Cast& op) {
    const std::span<const float> in = cpu[op.in];
    const std::span<float> out = cpu[op.out];
    cpu::for_elements(cpu, cpu.info(op.out).count(), [&](std::int64_t begin, std::int64_t end) {
        std::copy(in.begin() + begin, in.begin() + end, out.begin() + begin);
        cpu::round_in_place(cpu, op.out, begin, end - begin);
    });
}

void run(Cpu& cpu, const Dropout& op) {
    const StepContext& c = cpu.context;
    const auto count = static_cast<std::uint64_t>(cpu.info(op.out).count());
    const double probability = c.training ? op.probability : 0;
    cpu::map<DropoutKernel>(cpu, op.out, cpu[op.in].data(), static_cast<std::uint64_t>(std::ceil(probability * 0x1p32)),
                            1 / (1 - probability), RandomKey{.seed = c.seed, .stream = op.stream, .step = c.step},
                            c.part() * count);
}

} // namespace amp::op

#include <ampscope/sim/backend/cpu/detail/wide.h>
#include <ampscope/sim/backend/kernels/loss.h>

namespace amp::op {

using namespace kernels;

namespace {

std::int64_t rows_that_count(std::span<const float> targets) {
    return std::ranges::count_if(targets, [](float t) { return t >= 0; });
}

} // namespace

void run(Cpu& cpu, const CrossEntropy& op) {
    const std::int64_t width = cpu.info(op.logits).shape.back();
    const std::span<const float> logits = cpu[op.logits], targets = cpu[op.targets];
    const LossTerms terms = terms_now(op.terms, cpu.context.training);
    std::vector<double> wide(static_cast<std::size_t>(width));
    double sum = 0;
    for (std::size_t row = 0; row < targets.size(); ++row) {
        if (!(targets[row] >= 0)) continue;
        const float* const x = logits.data() + static_cast<std::int64_t>(row) * width;
        double loss = 0;
        dispatch<CrossEntropyKernel>(best_instruction_set(), x, width, wide.data(),
                                     static_cast<std::int64_t>(targets[row]), terms, &loss);
        sum += loss;
    }
    const double mean = sum / static_cast<double>(rows_that_count(targets));
    cpu::store(cpu, op.out, 0, &mean, 1);
}

void run(Cpu& cpu, const CrossEntropyBackward& op) {
    const double factor = cpu[op.grad_out][0] / static_cast<double>(rows_that_count(cpu[op.targets]));
    map_rows(cpu, CrossEntropyBackwardKernel{}, op.grad_in, cpu[op.logits].data(), cpu[op.targets].data(), factor,
             terms_now(op.terms, cpu.context.training));
}

void run(Cpu& cpu, const MseLoss& op) {
    const std::span<const float> in = cpu[op.in], targets = cpu[op.targets];
    double sum = 0;
    for (std::size_t i = 0; i < in.size(); ++i) {
        const double d = static_cast<double>(in[i]) - targets[i];
        sum += d * d;
    }
    const double mean = sum / static_cast<double>(in.size());
    cpu::store(cpu, op.out, 0, &mean, 1);
}

void run(Cpu& cpu, const MseLossBackward& op) {
    const double factor = 2.0 * cpu[op.grad_out][0] / static_cast<double>(cpu.info(op.in).count());
    map(cpu, MseBackwardKernel{}, op.grad_in, cpu[op.in].data(), cpu[op.targets].data(), factor);
}

void run(Cpu& cpu, const LossGradient& op) {
    const double scale = cpu.context.loss_scale;
    cpu::store(cpu, op.out, 0, &scale, 1);
    const double share = cpu[op.out][0] / static_cast<double>(cpu.context.micro_batches);
    cpu::store(cpu, op.out, 0, &share, 1);
}

} // namespace amp::op

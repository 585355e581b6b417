#include <ampscope/sim/backend/cpu/detail/wide.h>
#include <ampscope/sim/backend/kernels/norm.h>

namespace amp::op {

using namespace kernels;

namespace {

void parameter_gradients(Cpu& cpu, const NormBackward& op) {
    constexpr std::int64_t rows_at_once = 32;
    const std::int64_t n = cpu.info(op.in).shape.back(), rows = cpu.info(op.in).count() / n;
    const std::int64_t blocks = (rows + rows_at_once - 1) / rows_at_once, parameters = cpu.info(op.weight).count();
    const float *x = cpu[op.in].data(), *g = cpu[op.grad_out].data();
    std::vector<double> sums(static_cast<std::size_t>(2 * blocks * parameters));
    for_each_chunk(static_cast<std::uint64_t>(blocks), cpu::lines_at_once(rows_at_once * n), cpu.threads(),
                   [&](std::uint64_t begin, std::uint64_t end) {
                       for (auto b = static_cast<std::int64_t>(begin); b < static_cast<std::int64_t>(end); ++b) {
                           double* const to = sums.data() + 2 * b * parameters;
                           for (std::int64_t r = b * rows_at_once; r < std::min(rows, (b + 1) * rows_at_once); ++r)
                               dispatch<ParameterKernel>(best_instruction_set(), r, n, x, g, op.kind, op.eps, op.rows,
                                                         to, to + parameters);
                       }
                   });
    for (std::int64_t b = 1; b < blocks; ++b)
        for (std::int64_t i = 0; i < 2 * parameters; ++i)
            sums[static_cast<std::size_t>(i)] += sums[static_cast<std::size_t>(2 * b * parameters + i)];
    if (op.grad_weight) cpu::store(cpu, op.grad_weight, 0, sums.data(), parameters);
    if (op.grad_bias) cpu::store(cpu, op.grad_bias, 0, sums.data() + parameters, parameters);
}

} // namespace

void run(Cpu& cpu, const NormBackward& op) {
    if (op.grad_in)
        map_rows(cpu, BackwardKernel{}, op.grad_in, cpu[op.in].data(), cpu[op.weight].data(), cpu[op.grad_out].data(),
                 op.kind, op.eps, op.rows);
    if (op.grad_weight || op.grad_bias) parameter_gradients(cpu, op);
}

} // namespace amp::op

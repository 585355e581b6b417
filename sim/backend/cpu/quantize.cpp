#include <ampscope/sim/backend/cpu/detail/wide.h>
#include <ampscope/sim/backend/kernels/quantize.h>

#include <algorithm>

namespace amp::op {

namespace {

std::vector<BlockScale> scales_of(Cpu& cpu, const Quantize& op, std::span<const float> amax) {
    if (op.delayed) {
        const kernels::DelayedState s = kernels::delayed_state(cpu, op);
        return {kernels::delayed_scale(op.rule, amax[0], cpu.context.training,
                                       cpu[op.history].data() + s.row * s.length, s.length,
                                       cpu[op.delayed].data()[s.row])};
    }
    float tensor_scale = 1;
    if (op.tensor_scale) {
        tensor_scale = nvfp4_tensor_scale(*std::ranges::max_element(amax));
        cpu[op.tensor_scale][0] = 1 / tensor_scale;
    }
    std::vector<BlockScale> scales;
    for (const float a : amax) scales.push_back(block_scale(op.scaling.rule, op.scaling.element, a, tensor_scale));
    return scales;
}

} // namespace

void run(Cpu& cpu, const Quantize& op) {
    const std::span<const float> in = cpu[op.in];
    const std::span<float> out = cpu[op.out];
    const std::int64_t columns = cpu.info(op.in).shape.back(), rows = static_cast<std::int64_t>(in.size()) / columns;
    const std::vector<float> amax = block_amax(op.scaling, in, rows, columns);
    const std::vector<BlockScale> scales = scales_of(cpu, op, amax);
    const StepContext& c = cpu.context;
    quantize_blocks(op.scaling, in, rows, columns, scales, out,
                    {.policy = {.rounding = op.rounding},
                     .key = {.seed = c.seed, .stream = op.stream, .step = c.step},
                     .first_index = c.part() << 40});
    const std::span<float> decode_scales = cpu[op.scale];
    for (std::size_t i = 0; i < scales.size(); ++i) decode_scales[i] = scales[i].decode;
    if (cpu.counts_scalings || cpu.counts_roundings) count_scaled(cpu, op, in, out, scales, amax);
}

void run(Cpu& cpu, const Hadamard& op) {
    constexpr std::int64_t group = Hadamard::group;
    const std::span<const float> in = cpu[op.in];
    const std::int64_t columns = cpu.info(op.in).shape.back(), rows = static_cast<std::int64_t>(in.size()) / columns;
    std::vector<double> wide(static_cast<std::size_t>(columns));
    for (std::int64_t row = 0; row < rows; ++row) {
        const std::int64_t first = row / group * group;
        if (first + group <= rows)
            kernels::hadamard_row(in.data() + first * columns, columns, row - first, wide.data());
        else // the sum of one row: -0 becomes +0
            for (std::int64_t c = 0; c < columns; ++c)
                wide[static_cast<std::size_t>(c)] = 0.0 + in[static_cast<std::size_t>(row * columns + c)];
        cpu::store(cpu, op.out, row * columns, wide.data(), columns);
    }
}

void run(Cpu& cpu, const Dequantize& op) {
    const std::span<const float> in = cpu[op.in], scales = cpu[op.scale];
    const std::int64_t columns = cpu.info(op.in).shape.back(), rows = static_cast<std::int64_t>(in.size()) / columns;
    const BlockGrid grid = op.scaling.grid(rows, columns);
    std::vector<double> wide(static_cast<std::size_t>(columns));
    for (std::int64_t i = 0; i < rows; ++i) {
        for (std::int64_t j = 0; j < columns; ++j)
            wide[static_cast<std::size_t>(j)] = static_cast<double>(in[static_cast<std::size_t>(i * columns + j)]) *
                                                scales[static_cast<std::size_t>(grid.at(i, j))];
        cpu::store(cpu, op.out, i * columns, wide.data(), columns);
    }
}

void run(Cpu& cpu, const UpdateScale& op) {
    const std::int64_t rows = cpu.info(op.scale).count(), length = cpu.info(op.history).count() / rows;
    for (std::int64_t row = 0; row < rows; ++row)
        kernels::update_scale(op.rule, op.most_recent, cpu[op.history].data() + row * length, length,
                              cpu[op.scale].data()[row]);
}

} // namespace amp::op

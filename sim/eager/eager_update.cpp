#include <ampscope/sim/eager/eager_update.h>

#include <ampscope/formats/batch.h>
#include <ampscope/formats/environment.h>
#include <ampscope/sim/backend/cpu/cpu.h>
#include <ampscope/sim/program/muon.h>

#include <algorithm>
#include <fmt/format.h>
#include <stdexcept>

namespace amp {

UpdateCounts eager_update(const OptimizerOptions& options, const UpdateStep& step, const ParameterState& state,
                          const Shape& shape, const Precision& precision, int threads) {
    if (!facts_of(options.kind).orthogonalizes) return update(options, step, state);
    if (shape.size() != 2)
        throw std::invalid_argument(
            fmt::format("[update] muon: expected a matrix, got a tensor of {} axes", shape.size()));
    if (state.scaled != ScaledState{}) throw std::invalid_argument("[update] muon: weights and state under a scale");
    Program program;
    const auto tensor = [&](const char* name, const FormatSpec& f) {
        program.tensors.push_back({.name = name, .shape = shape, .format = f, .role = TensorRole::state});
        return TensorId{static_cast<std::int32_t>(program.tensors.size() - 1)};
    };
    op::Update op{.options = options,
                  .rounding = state.rounding,
                  .random_bits = state.random_bits,
                  .weight = tensor("weight", state.weight_format),
                  .gradient = tensor("gradient", state.weight_format),
                  .m = {},
                  .v = {},
                  .compensation = {},
                  .stream = step.key.stream};
    op.options.learning_rate = step.learning_rate;
    const TensorId m = tensor("m", state.m_format);
    if (state.rounding == UpdateRounding::kahan) op.compensation = tensor("compensation", state.weight_format);
    append_muon(program, op, m, precision.at("").product(format("bf16"), format("bf16"), false));

    const FloatEnvironment environment;
    Cpu cpu(program, threads);
    cpu.context.seed = step.key.seed;
    cpu.context.step = step.key.step;
    cpu.context.update = step.t;
    const auto held = {std::pair(op.weight, state.weight), std::pair(m, state.m),
                       std::pair(op.compensation, state.compensation)};
    quantize(state.weight_format, state.gradient, cpu[op.gradient]);
    for (const auto& [id, memory] : held)
        if (id) std::ranges::copy(memory, cpu[id].begin());
    replay(cpu, program.update);
    for (const auto& [id, memory] : held)
        if (id) std::ranges::copy(cpu.read(id), memory.begin());
    return cpu.updates;
}

} // namespace amp

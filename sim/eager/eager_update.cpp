#include <ampscope/sim/eager/eager_update.h>

#include <ampscope/formats/batch.h>
#include <ampscope/formats/environment.h>
#include <ampscope/sim/backend/cpu/cpu.h>
#include <ampscope/sim/program/adafactor.h>
#include <ampscope/sim/program/muon.h>

#include <algorithm>
#include <fmt/format.h>
#include <stdexcept>
#include <vector>

namespace amp {

UpdateCounts eager_update(const OptimizerOptions& options, const UpdateStep& step, const ParameterState& state,
                          const Shape& shape, const Precision& precision, int threads) {
    const KindFacts kind = facts_of(options.kind);
    if (!kind.needs_whole()) return update(options, step, state);
    if (kind.orthogonalizes ? shape.size() != 2 : shape.size() > 2)
        throw std::invalid_argument(fmt::format("[update] {}: expected a matrix{}, got a tensor of {} axes", kind.name,
                                                kind.orthogonalizes ? "" : " or a vector", shape.size()));
    if (state.scaled != ScaledState{})
        throw std::invalid_argument(fmt::format("[update] {}: weights and state under a scale", kind.name));
    Program program;
    const auto tensor = [&](const char* name, const Shape& of, const FormatSpec& f) {
        program.tensors.push_back({.name = name, .shape = of, .format = f, .role = TensorRole::state});
        return TensorId{static_cast<std::int32_t>(program.tensors.size() - 1)};
    };
    op::Update op{.options = options,
                  .rounding = state.rounding,
                  .random_bits = state.random_bits,
                  .weight = tensor("weight", shape, state.weight_format),
                  .gradient = tensor("gradient", shape, state.weight_format),
                  .m = {},
                  .v = {},
                  .compensation = {},
                  .stream = step.key.stream};
    op.options.learning_rate = step.learning_rate;
    std::vector held = {std::pair(op.weight, state.weight)};
    const auto keep = [&](const char* name, const Shape& of, const FormatSpec& f, std::span<float> memory) {
        const TensorId id = tensor(name, of, f);
        held.emplace_back(id, memory);
        return id;
    };
    if (state.rounding == UpdateRounding::kahan)
        op.compensation = keep("compensation", shape, state.weight_format, state.compensation);
    if (kind.orthogonalizes) {
        const TensorId m = keep("m", shape, state.m_format, state.m);
        append_muon(program, op, m, precision.at("").product(format("bf16"), format("bf16"), false));
    } else if (shape.size() == 2) {
        const auto rows = static_cast<std::size_t>(shape[0]);
        const TensorId v = keep("row_var", {shape[0]}, state.v_format, state.v.first(rows));
        append_adafactor(program, op, v, keep("col_var", {shape[1]}, state.v_format, state.v.subspan(rows)));
    } else {
        append_adafactor(program, op, keep("v", shape, state.v_format, state.v), {});
    }

    const FloatEnvironment environment;
    Cpu cpu(program, threads);
    cpu.context.seed = step.key.seed;
    cpu.context.step = step.key.step;
    cpu.context.update = step.t;
    quantize(state.weight_format, state.gradient, cpu[op.gradient]);
    for (const auto& [id, memory] : held) std::ranges::copy(memory, cpu[id].begin());
    replay(cpu, program.update);
    for (const auto& [id, memory] : held) std::ranges::copy(cpu.read(id), memory.begin());
    return cpu.updates;
}

} // namespace amp

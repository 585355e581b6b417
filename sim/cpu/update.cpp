#include <ampscope/sim/cpu/cpu.h>

namespace amp {

void run(Cpu& cpu, const Update& op) {
    const auto data = [&](TensorId id) { return id ? cpu[id] : std::span<float>{}; };
    const auto format_of = [&](TensorId id) { return id ? cpu.info(id).format : format("fp32"); };
    const StepContext& c = cpu.context;
    const UpdateCounts counts = update(
        op.options,
        {.t = c.update, .learning_rate = c.learning_rate, .key = {.seed = c.seed, .stream = op.stream, .step = c.step}},
        {.weight_format = format_of(op.weight),
         .m_format = format_of(op.m),
         .v_format = format_of(op.v),
         .weight = cpu[op.weight],
         .gradient = cpu[op.gradient],
         .m = data(op.m),
         .v = data(op.v),
         .compensation = data(op.compensation),
         .scaled = scaled_state(cpu.program(), op)});
    cpu.updates += counts;
}

} // namespace amp

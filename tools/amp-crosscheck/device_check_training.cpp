// Ops on their own, and whole trainings.
#include <ampscope/sim/backend/cpu/cpu.h>
#include <ampscope/sim/backend/cuda/cuda.h>
#include <ampscope/sim/backend/cuda/tensor_core.h>
#include <ampscope/sim/train/configuration.h>
#include <ampscope/sim/train/lockstep.h>
#include <ampscope/tools/amp-crosscheck/device_check.h>
#include <ampscope/tools/amp-crosscheck/op_cases.h>

#include <algorithm>
#include <bit>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>

namespace amp::crosscheck_tool {

namespace {

std::string place(const LockstepMismatch& m) { return fmt::format("{}: {} [{}]", m.op, m.tensor, m.index); }

/// The options of a short training.
TrainOptions options_of(std::string_view network, std::string_view precision_text) {
    TrainOptions o;
    o.model = model(network).defaults;
    o.model.width = network == "cnn" ? 8 : 32;
    o.model.dropout = 0.1;
    o.precision = precision(precision_text);
    o.optimizer = optimizer("adamw").options;
    o.clip = 1;
    o.batch = 8;
    o.seed = 1;
    if (!o.precision.scaling || o.precision.scaling->input.along == 0) return o;
    // Recipes with blocks differ only if a product sums over more than the elements of a small block and their
    // magnitudes are far apart, as they soon are at a high learning rate: within five steps here.
    o.model.width = network == "mlp" ? 136 : network == "cnn" ? 40 : 48;
    o.batch = network == "mlp" ? 40 : 10;
    o.optimizer.learning_rate = 0.3;
    return o;
}

struct Training {
    const Dataset& data;
    TrainOptions options;
    MakeBackend device;
};

/// Names the op that differs first, by running both backends side by side.
void locate(const Training& t, std::int64_t steps, CheckRow& row) {
    LockstepReport report;
    Trainer trainer(t.options, t.data, in_lockstep(on_processor(), t.device, report));
    for (std::int64_t i = 0; i < steps && report.mismatches() == 0; ++i) trainer.step();
    for (const auto& [op, counts] : report.ops)
        if (counts.first) row.first = {place(*counts.first), counts.first->got, counts.first->want};
}

void compare(const Training& t, std::int64_t steps, CheckRow& row) {
    Trainer here(t.options, t.data), there(t.options, t.data, t.device);
    std::int64_t first_wrong = steps;
    for (std::int64_t i = 0; i < steps; ++i) {
        const StepResult want = here.step(), got = there.step();
        const auto differs = row.mismatches;
        row.expect(std::bit_cast<std::uint32_t>(static_cast<float>(got.loss)),
                   std::bit_cast<std::uint32_t>(static_cast<float>(want.loss)),
                   [&] { return fmt::format("loss of step {}", i); });
        row.expect(got.found_inf, want.found_inf, [&] { return fmt::format("found_inf of step {}", i); });
        if (row.mismatches > differs) first_wrong = std::min(first_wrong, i + 1);
    }
    for (const TensorId id : here.state_tensors()) {
        const std::span<const float> want = here.backend().read(id), got = there.backend().read(id);
        for (std::size_t i = 0; i < want.size(); ++i)
            row.expect(std::bit_cast<std::uint32_t>(got[i]), std::bit_cast<std::uint32_t>(want[i]),
                       [&] { return fmt::format("{} [{}]", here.backend().info(id).name, i); });
    }
    row.note = fmt::format("{} steps, hash {}", steps, fingerprint_of(there));
    if (const auto* cuda = dynamic_cast<const Cuda*>(&there.backend()); cuda != nullptr && cuda->is_native())
        row.note += fmt::format(", {} of {} products on tensor cores", cuda->native_products, cuda->products);
    if (row.mismatches > 0) locate(t, first_wrong, row);
}

/// "A+B": the rows that the device's instructions add up as, in FP32; narrow operands first, as FP16 reads FP8 too.
std::string rows_of(const CudaDevice& device, bool warpgroup) {
    std::vector<std::string> rows;
    for (const TensorCoreInstruction& i : tensor_core_instructions(device))
        if (i.warpgroup == warpgroup && !i.acc16() && std::ranges::find(rows, i.accumulator) == rows.end())
            rows.push_back(i.accumulator);
    std::ranges::reverse(rows);
    return fmt::format("{}", fmt::join(rows, "+"));
}

} // namespace

void check_ops(CheckRows& rows) {
    const CheckOptions& o = rows.options();
    rows.put("ops", [&] {
        std::map<std::string, CheckRow> ops;
        for (const OpCase& c : op_cases()) {
            LockstepReport report;
            const auto backend = in_lockstep(on_processor(), on_device(o.device), report)(c.program);
            for (std::uint64_t seed = 1; seed <= (o.quick ? 1 : 8); ++seed) { // 0 is what one that is lost would be
                fill_operands(*backend, c, seed);
                backend->counts_roundings = (seed + c.name.size()) % 2 == 1; // for some at each seed
                amp::replay(*backend, c.program.forward);
            }
            for (const auto& [op, counts] : report.ops) {
                CheckRow& row = ops[op];
                row.part = "ops";
                row.name = op;
                row.cases += counts.cases;
                row.mismatches += counts.mismatches;
                if (counts.first && !row.first)
                    row.first = {c.name + ": " + place(*counts.first), counts.first->got, counts.first->want};
            }
        }
        std::vector<CheckRow> all;
        for (const auto& [op, row] : ops) all.push_back(row);
        return all;
    });
}

void check_training(CheckRows& rows) {
    const CheckOptions& o = rows.options();
    const Dataset digits = digits_data(), modular = modular_data(23);
    const std::int64_t steps = o.quick ? std::min<std::int64_t>(o.steps, 5) : o.steps;
    const auto run = [&](const char* network, std::string_view preset, const std::string& accumulate,
                         CudaArithmetic arithmetic, std::string_view how) {
        const std::string text = std::string(preset) + (accumulate.empty() ? "" : ",accumulate=" + accumulate);
        const Dataset& data = model(network).reads_tokens ? modular : digits;
        const Training t{data, options_of(network, text), on_device(o.device, arithmetic)};
        rows.put("training", fmt::format("{} {}, {}", network, preset, how),
                 [&](CheckRow& row) { compare(t, steps, row); });
    };
    for (const char* network : {"mlp", "cnn", "gpt"})
        for (const PrecisionRow& preset : precisions())
            run(network, preset.name, "", CudaArithmetic::emulated, "emulated");
    for (const char* network : {"resnet", "llama"})
        for (const char* preset : {"fp32", "amp-fp16", "fp8-delayed"})
            run(network, preset, "", CudaArithmetic::emulated, "emulated");
    for (const bool warpgroup : {false, true}) {
        const std::string accumulators = rows_of(o.device, warpgroup);
        for (const char* network : {"mlp", "cnn", "gpt"})
            for (const char* preset : {"amp-fp16", "amp-bf16", "tf32-truncate", "fp8-current", "fp8-block"})
                if (!accumulators.empty())
                    run(network, preset, accumulators, CudaArithmetic::native,
                        warpgroup ? "native wgmma" : "native mma.sync");
    }
}

} // namespace amp::crosscheck_tool

// The device backend with its functions compiled for the host: every op in lockstep with the processor's, bit for bit.
#include "sweep.h"

#include <ampscope/sim/backend/cpu/cpu.h>
#include <ampscope/sim/backend/cuda/cuda.h>
#include <ampscope/sim/train/configuration.h>
#include <ampscope/sim/train/lockstep.h>
#include <ampscope/sim/train/trainer.h>
#include <ampscope/tools/amp-crosscheck/op_cases.h>

#include <doctest/doctest.h>

#include <bit>
#include <set>

using namespace amp;
using namespace amp::crosscheck_tool;
using namespace amp::test;

namespace {

void expect_equal(const LockstepReport& report) {
    for (const auto& [op, counts] : report.ops) {
        if (!counts.first) continue;
        const LockstepMismatch& m = *counts.first;
        FAIL_CHECK(fmt::format("{}: {} of {} differ; first: {} [{}]: got {:#010x}, expected {:#010x}", op,
                               counts.mismatches, counts.cases, m.tensor, m.index, m.got, m.want));
    }
}

} // namespace

TEST_CASE("every op on its own, over shapes, formats and edge values") {
    LockstepReport all;
    std::size_t number = 0;
    std::set<std::size_t> covered;
    for (const OpCase& c : op_cases()) {
        CAPTURE(c.name);
        LockstepReport report;
        const auto backend = in_lockstep(on_processor(), on_device({}), report)(c.program);
        covered.insert(c.program.forward.front().op.index());
        const bool one = number++ % 2 == 0;
        for (const bool counts : {false, true}) {
            if (under_sanitizers && counts == one) continue;
            fill_operands(*backend, c, counts ? 1 : 2);
            backend->counts_roundings = counts;
            replay(*backend, c.program.forward);
        }
        expect_equal(report);
        for (const auto& [op, counts] : report.ops) {
            all.ops[op].runs += counts.runs;
            all.ops[op].cases += counts.cases;
        }
    }
    for (const auto& [op, counts] : all.ops) fmt::print("{}: {} runs, {} numbers\n", op, counts.runs, counts.cases);
    CHECK(covered.size() == std::variant_size_v<Op>);
    CHECK(all.cases() > (under_sanitizers ? 500'000 : 1'000'000));
}

TEST_CASE("whole steps of training, op by op") {
    const Dataset digits = digits_data(), modular = modular_data(13);
    std::size_t number = 0;
    for (const PrecisionRow& row : precisions())
        for (const auto& network : {std::pair("mlp", "plain"),
                                    {"cnn", "plain"},
                                    {"resnet", "plain"},
                                    {"gpt", "plain"},
                                    {"llama", "plain"},
                                    {"llama", "fused:2x3"}}) {
            if (!is_due(number++)) continue; // there are six networks: in the end each comes
            const char *const name = network.first, *const attention = network.second;
            CAPTURE(row.name);
            CAPTURE(name);
            CAPTURE(attention);
            TrainOptions o;
            o.model = model(name).defaults;
            o.model.width = o.model.name == "cnn" || o.model.name == "resnet" ? 4 : 32;
            o.model.dropout = 0.1;
            o.model.attention = attention;
            o.precision = row.make();
            o.batch = 4;
            o.micro_batches = 2;
            o.replicas = 2;
            o.clip = 0.5;
            LockstepReport report;
            Trainer trainer(o, model(name).reads_tokens ? modular : digits,
                            in_lockstep(on_processor(), on_device({}), report));
            for (int i = 0; i < 2; ++i) trainer.step();
            expect_equal(report);
            CHECK(report.cases() > 10'000);
        }
}

TEST_CASE("a run on the device alone ends in the same bits") {
    const Dataset data = digits_data();
    for (const char* preset : {"fp32", "amp-fp16", "fp8-delayed", "mxfp8"}) {
        CAPTURE(preset);
        TrainOptions o;
        o.model = model("mlp").defaults;
        o.model.width = 16;
        o.precision = precision(preset);
        Trainer cpu(o, data, 1), device(o, data, on_device({}));
        for (int i = 0; i < 5; ++i) {
            const StepResult want = cpu.step(), got = device.step();
            CHECK(std::bit_cast<std::uint64_t>(got.loss) == std::bit_cast<std::uint64_t>(want.loss));
            CHECK(got.gradient_norm == want.gradient_norm);
            CHECK(got.updates.changed == want.updates.changed);
        }
        CHECK(fingerprint_of(device) == fingerprint_of(cpu));
        CHECK(device.evaluate().loss == cpu.evaluate().loss);
    }
}

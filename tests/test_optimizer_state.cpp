// Adam's state in blocks that share a scale: against torchao and bitsandbytes over 1,000 steps, bit for bit, and in
// trainings.
#include "recorded_steps.h"
#include "tool.h"

#include <ampscope/formats/batch.h>
#include <ampscope/formats/scaled_format.h>
#include <ampscope/sim/backend/update.h>
#include <ampscope/sim/train/data/dataset.h>
#include <ampscope/sim/train/plan.h>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <fmt/format.h>
#include <fstream>
#include <limits>
#include <map>

using namespace amp;
using namespace amp::test;

namespace {

std::string hex(float x) { return fmt::format("{:08x}", std::bit_cast<std::uint32_t>(x)); }

/// Every so many numbers, as the recording keeps them.
std::vector<std::string> kept(std::span<const float> values, std::size_t apart) {
    std::vector<std::string> some;
    for (std::size_t i = 0; i < values.size(); i += apart) some.push_back(hex(values[i]));
    return some;
}

/// What tests/data/torch/optimizer_state.py trains with: the first weights, and the gradients of 1,000 steps.
struct Inputs {
    std::vector<float> weight;
    std::vector<std::vector<float>> gradients;

    Inputs(bool is_torchao, const FormatSpec& f) {
        constexpr std::size_t block = 256;
        const std::size_t count = is_torchao ? 18 * block : 18 * block + block / 2; // whole blocks, or not
        Stream stream(count);
        weight = stream.next(3, f);
        std::vector<float> smaller(count);
        for (std::size_t i = 0; i < count; ++i)
            smaller[i] = std::ldexp(1.0F, (is_torchao ? -4 : -2) * static_cast<int>(i / block));
        for (int t = 1; t <= 1000; ++t) {
            std::vector<float>& gradient = gradients.emplace_back(stream.next(12, format("fp32")));
            for (std::size_t i = 0; i < count; ++i) gradient[i] *= t < 5 && i >= count - block ? 0 : smaller[i];
            if (t == 500 && is_torchao) gradient[600] = std::numeric_limits<float>::infinity();
            if (t == 500 && is_torchao) gradient[900] = std::nanf("");
            quantize(f, gradient, gradient);
        }
    }
};

/// Repeats a recorded run. What differs from it; empty if nothing does.
std::string differences(const nlohmann::json& row, const Inputs& inputs, const FormatSpec& f) {
    OptimizerOptions o = optimizer(row["optimizer"].get<std::string>()).options;
    o.learning_rate = row["lr"];
    o.beta1 = row["betas"][0], o.beta2 = row["betas"][1];
    o.eps = row["eps"];
    o.weight_decay = row["weight_decay"];
    o.contract = row["capability"] == "avx2";
    const std::string name = row["state"];
    const ScaledState scaled{.m = scaled_format(name, true), .v = scaled_format(name, false)};
    std::vector<float> weight = inputs.weight, m(weight.size()), v(weight.size());
    std::string wrong;
    for (std::int64_t t = 1; t <= 1000; ++t) {
        update(o, {.t = t, .learning_rate = o.learning_rate},
               {.weight_format = f,
                .m_format = format("fp32"),
                .v_format = format("fp32"),
                .weight = weight,
                .gradient = inputs.gradients[static_cast<std::size_t>(t - 1)],
                .m = m,
                .v = v,
                .compensation = {},
                .scaled = scaled});
        if (!row["hashes"].contains(std::to_string(t))) continue;
        std::uint64_t h = 0xCBF29CE484222325;
        for (const auto* const values : {&weight, &m, &v}) hash_into(h, *values);
        if (row["hashes"][std::to_string(t)] != fmt::format("{:016x}", h)) wrong += fmt::format(" step {}", t);
    }
    if (row["weight"] != kept(weight, 512)) wrong += " weights";
    if (row["m"] != kept(m, 512)) wrong += " m";
    if (row["v"] != kept(v, 512)) wrong += " v";
    return wrong;
}

} // namespace

TEST_CASE("1,000 steps of torchao's and bitsandbytes' Adam with state of 8 and 4 bits, bit for bit") {
    std::size_t runs = 0;
    int compared = 0, tables = 0;
    std::map<std::pair<bool, std::string>, Inputs> inputs;
    std::ifstream file(AMPSCOPE_TEST_DATA "/torch/optimizer_state.jsonl");
    for (std::string line; std::getline(file, line);) {
        const auto row = nlohmann::json::parse(line);
        if (row.contains("numbers")) {
            ++tables;
            const auto f = scaled_format(row["state"].get<std::string>(), row["moment"] == "m");
            CHECK(row["numbers"] == kept(code_numbers(*f, row["capability"] == "avx2"), 1));
            continue;
        }
        if (!is_due(runs++)) continue;
        ++compared;
        const bool is_torchao = row["package"].get<std::string>().starts_with("torchao");
        const FormatSpec f = format(row["dtype"].get<std::string>());
        const auto [found, is_new] = inputs.try_emplace({is_torchao, std::string(f.name)}, is_torchao, f);
        const std::string wrong = differences(row, found->second, f);
        CHECK_MESSAGE(wrong.empty(), row.dump().substr(0, 250), wrong);
    }
    CHECK(tables == 8);
    CHECK(runs == 48);
    fmt::print("proof: block-scaled state over 1,000 steps: {} recorded runs, 0 mismatches\n", compared);
}

TEST_CASE("which tensors a training keeps in blocks, and the memory that takes") {
    TrainOptions o;
    o.model = {.name = "mlp", .width = 64, .depth = 2};
    o.precision = precision("pure-bf16,m=dynamic8:256,v=e4m3:512");
    const TrainingProgram t = build_training_program(o, digits_data());
    std::int64_t held = 0, others = 0;
    for (const ParameterTensors& q : t.parameters) {
        const TensorInfo &m = t.program[q.m], &v = t.program[q.v];
        CAPTURE(m.name);
        if (m.count() == 64 * 64) {
            held += m.count();
            CHECK(m.scaled_as == scaled_format("dynamic8:256", true));
            CHECK(v.scaled_as == scaled_format("e4m3:512", false));
            CHECK(m.format == fp32_format());
        } else { // as torchao has it, in the format of the weights
            others += m.count();
            CHECK(!m.scaled_as);
            CHECK(m.format == format("bf16"));
            CHECK(v.format == format("bf16"));
        }
    }
    CHECK(held >= 2 * 64 * 64);
    CHECK(others > 0);
    std::map<std::string, double> bytes;
    for (const MemoryAccount::Row& row : memory_of(t).rows) bytes[row.purpose] += row.bytes();
    CHECK(bytes["optimizer m"] == static_cast<double>(held + 2 * others));
    CHECK(bytes["scales of optimizer m"] == static_cast<double>(4 * held / 256));
    CHECK(bytes["scales of optimizer v"] == static_cast<double>(4 * held / 512));
    for (const std::int64_t count : {255, 256, 3840, 4095, 4097, 5000})
        CHECK(!scaled_format("e4m3:256", true)->holds(count));
    for (const std::int64_t count : {4096, 4352}) CHECK(scaled_format("dynamic8:256", true)->holds(count));
}

TEST_CASE("bitsandbytes: where 1 / amax is infinite, its wheel for x86 reads the table's first number for a zero") {
    for (const bool has_negatives : {true, false}) {
        const ScaledFormat f = *scaled_format("bnb8:256", has_negatives);
        std::vector<float> x(4096);
        x[0] = 1e-40F;
        keep_scaled(f, x);
        CHECK(x[1] == code_numbers(f, false)[0] * 1e-40F); // -9.9e-41 of m, 0 of v
        x[300] = std::nanf("");
        keep_scaled(f, x);
        CHECK(x[300] == 0); // in a block of zeros; and no other block has a NaN
        CHECK(std::ranges::none_of(x, [](float y) { return y != y; }));
    }
    CHECK(precision("pure-bf16,m=bnb8:256").m == fp32_format()); // of smaller tensors, as bitsandbytes keeps them
    CHECK(precision("pure-bf16,m=dynamic8:256").m == format("bf16"));
}

TEST_CASE("what --precision cannot keep so is refused in a line") {
    for (const char* wrong : {"m=dynamic8", "m=dynamic8:tensor", "v=dynamic8:1", "v=dynamic8:256x", "m=fp16:256",
                              "v=e8m0:256", "m=none:256", "master=e4m3:256", "m=e4m3:65537"}) {
        CAPTURE(wrong);
        CHECK_THROWS_AS(precision(std::string("fp32,") + wrong), std::invalid_argument);
    }
    CHECK_THROWS_WITH(precision("fp32,m=e4m3:channel"), doctest::Contains("m: e4m3:channel: expected FORMAT:tensor"));
    CHECK_THROWS_WITH(precision("fp32,m=dynamic8"), doctest::Contains("dynamic8: needs blocks, such as dynamic8:256"));
    const Precision p = precision("fp32,m=dynamic8:256,v=dynamic4:128");
    CHECK(p.scaled_state.m->name() == "dynamic8:256");
    CHECK(p.scaled_state.v->name() == "dynamic4:128");
    CHECK(p.scaled_state.m->has_negatives);
    CHECK_FALSE(p.scaled_state.v->has_negatives);
    TrainOptions o;
    o.precision = p;
    o.optimizer = optimizer("muon").options;
    CHECK_THROWS_AS(build_training_program(o, digits_data()), std::invalid_argument);
}

TEST_CASE("a training with 8-bit state learns, on any number of threads, and is resumed") {
    const Scratch scratch;
    const Tool train{AMP_TRAIN};
    const std::string options = "--model mlp --width 64 --optimizer torchao-adamw --lr 3e-3 --precision "
                                "fp32,m=dynamic8:256,v=dynamic8:256 ",
                      runs = "--checkpoint-every 5 --record " + (scratch / "runs").string();
    const auto run = [&](const std::string& more) { return train.json(options + more)["runs"][0]; };
    const auto whole = run("--steps 40 --threads 1");
    CHECK(whole["accuracy"].get<double>() > 0.8);
    CHECK(run("--steps 40 --threads 3")["fingerprint"] == whole["fingerprint"]);
    REQUIRE(train(options + "--steps 13 " + runs).code == 0);
    CHECK(run("--steps 40 --resume " + runs)["fingerprint"] == whole["fingerprint"]);
    CHECK(
        train.json("--model mlp --width 64 --optimizer torchao-adamw --lr 3e-3 --steps 40")["runs"][0]["fingerprint"] !=
        whole["fingerprint"]);
}

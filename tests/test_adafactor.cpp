// Adafactor against torch.optim's over 1,000 steps, bit for bit where its sums are ours, and in trainings.
#include "recorded_steps.h"
#include "sweep.h"
#include "tool.h"

#include <ampscope/sim/eager/eager_update.h>
#include <ampscope/sim/train/data/dataset.h>
#include <ampscope/sim/train/plan.h>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fstream>
#include <map>

using namespace amp;
using namespace amp::test;

namespace {

OptimizerOptions adafactor_of(const nlohmann::json& row) {
    OptimizerOptions o = optimizer("adafactor").options;
    o.learning_rate = row["lr"];
    o.weight_decay = row.value("weight_decay", 0.0);
    o.beta2_decay = row.value("beta2_decay", o.beta2_decay);
    o.update_clip = row.value("d", o.update_clip);
    if (row.contains("eps")) o.eps = row["eps"][0], o.eps2 = row["eps"][1];
    o.contract = row["capability"] == "avx2";
    return o;
}

/// A weight and what Adafactor keeps of it.
struct Adafactored {
    Shape shape;
    FormatSpec f;
    std::vector<float> weight, v;

    Adafactored(Shape s, const FormatSpec& of, std::vector<float> w)
        : shape(std::move(s)), f(of), weight(std::move(w)),
          v(shape.size() == 2 ? static_cast<std::size_t>(shape[0] + shape[1]) : weight.size()) {}
    UpdateCounts step(const OptimizerOptions& o, std::int64_t t, const std::vector<float>& gradient, int threads = 1) {
        return eager_update(o, {.t = t, .learning_rate = o.learning_rate},
                            {.weight_format = f,
                             .m_format = f,
                             .v_format = f,
                             .weight = weight,
                             .gradient = gradient,
                             .m = {},
                             .v = v,
                             .compensation = {}},
                            shape, {}, threads);
    }
};

} // namespace

TEST_CASE("1,000 steps of torch.optim.Adafactor: bit for bit where its sums are ours, near them where they are not") {
    std::ifstream file(AMPSCOPE_TEST_DATA "/torch/adafactor.jsonl");
    std::size_t rows = 0, compared = 0;
    std::map<std::string, double> largest;
    for (std::string line; std::getline(file, line);) {
        if (!is_due(rows++)) continue;
        ++compared;
        const auto row = nlohmann::json::parse(line);
        const OptimizerOptions o = adafactor_of(row);
        const std::string name = row["dtype"];
        const Shape shape = row["shape"];
        Stream stream(static_cast<std::size_t>(element_count(shape)));
        const std::vector<float> first = stream.next(3, format(name));
        Adafactored ours(shape, format(name), first);
        for (std::int64_t t = 1; t <= 1000; ++t) {
            ours.step(o, t, stream.next(12, ours.f));
            if (t == 10) { // how far PyTorch's sums lead, against how far the steps lead
                double apart = 0, moved = 0;
                const std::vector<double> stock = row["stock"];
                for (std::size_t i = 0; i < stock.size(); ++i) {
                    apart += (ours.weight[i] - stock[i]) * (ours.weight[i] - stock[i]);
                    moved += (ours.weight[i] - first[i]) * (ours.weight[i] - first[i]);
                }
                largest[name] = std::max(largest[name], std::sqrt(apart / moved));
            }
            if (!row["hashes"].contains(std::to_string(t))) continue;
            std::uint64_t h = 0xCBF29CE484222325;
            hash_into(h, ours.weight);
            hash_into(h, ours.v);
            CHECK_MESSAGE(row["hashes"][std::to_string(t)] == fmt::format("{:016x}", h), row.dump().substr(0, 180), t);
        }
    }
    CHECK(rows == 30);
    CHECK(largest["fp32"] < 1e-6);
    CHECK(largest["bf16"] < 0.03);
    CHECK(largest["fp16"] < 0.005);
    fmt::print("proof: Adafactor over 1,000 steps: {} recorded runs, 0 mismatches; PyTorch's own sums lead {:.2g}, "
               "{:.2g} and {:.2g} of the way elsewhere\n",
               compared, largest["fp32"], largest["bf16"], largest["fp16"]);
}

TEST_CASE("Adafactor's second moment of a matrix is a number for each row and column, on any number of threads") {
    const FormatSpec f = format("bf16");
    const OptimizerOptions o = optimizer("adafactor").options;
    Stream stream(1300 * 70);
    const std::vector<float> weight = stream.next(3, f);
    Adafactored one({1300, 70}, f, weight), three({1300, 70}, f, weight);
    for (std::int64_t t = 1; t <= 3; ++t) {
        const std::vector<float> gradient = stream.next(12, f);
        CHECK(one.step(o, t, gradient).changed == three.step(o, t, gradient, 3).changed);
    }
    CHECK(one.v.size() == 1370);
    CHECK(one.weight == three.weight);
    CHECK(one.v == three.v);
    CHECK(one.weight != weight);
    Adafactored images({2, 3, 4}, f, std::vector<float>(24, 1.0F));
    CHECK_THROWS_WITH_AS(images.step(o, 1, std::vector<float>(24, 1.0F)),
                         doctest::Contains("expected a matrix or a vector"), std::invalid_argument);
    CHECK_THROWS_WITH_AS(update(o, {},
                                {.weight_format = f,
                                 .m_format = f,
                                 .v_format = f,
                                 .weight = one.weight,
                                 .gradient = three.weight,
                                 .m = {},
                                 .v = one.v,
                                 .compensation = {}}),
                         doctest::Contains("expected the norms"), std::invalid_argument);
}

TEST_CASE("in FP16 the squares of Adafactor's norms overflow from 256 on, as torch's do") {
    // torch.optim.Adafactor's row_var and col_var become infinite, V is NaN, and so are the weights.
    for (const auto& [size, finite] : {std::pair{63.0F, true}, {65.0F, false}}) { // norms of 252 and 260
        Adafactored a({16, 16}, format("fp16"), std::vector<float>(256, 1.0F));
        const UpdateCounts counts = a.step(optimizer("adafactor").options, 1, std::vector<float>(256, size));
        CHECK(counts.nonfinite == (finite ? 0 : 256));
        CHECK(std::isfinite(a.v[0]) == finite);
    }
}

TEST_CASE("which tensors Adafactor keeps, and the memory they take") {
    TrainOptions o;
    o.model = {.name = "mlp", .width = 16, .depth = 2};
    o.optimizer = optimizer("adafactor").options;
    o.precision = precision("fp32,v=bf16");
    const TrainingProgram t = build_training_program(o, digits_data());
    std::int64_t numbers = 0;
    for (const ParameterTensors& p : t.parameters) {
        const TensorInfo &weight = t.program[p.weight], &v = t.program[p.v];
        CAPTURE(weight.name);
        CHECK(!p.m);
        CHECK(static_cast<bool>(p.v_columns) == (weight.shape.size() == 2));
        CHECK(v.format == format("bf16"));
        CHECK(v.name == weight.name + (p.v_columns ? ".row_var" : ".v"));
        CHECK(v.count() == weight.shape[0]);
        if (p.v_columns) CHECK(t.program[p.v_columns].count() == weight.shape[1]);
        numbers += v.count() + (p.v_columns ? weight.shape[1] : 0);
    }
    std::map<std::string, double> bytes;
    for (const MemoryAccount::Row& row : memory_of(t).rows) bytes[row.purpose] += row.bytes();
    CHECK(bytes["optimizer v"] == static_cast<double>(2 * numbers));
    CHECK(!bytes.contains("optimizer m"));
}

TEST_CASE("Adafactor takes neither a sharded optimizer nor state in 8 bits") {
    TrainOptions o;
    o.optimizer = optimizer("adafactor").options;
    o.precision = precision("fp32,v=dynamic8:256");
    CHECK_THROWS_WITH_AS(build_training_program(o, digits_data()), doctest::Contains("nor 8-bit state"),
                         std::invalid_argument);
    o.precision = {};
    o.replicas = 2;
    o.shard.sharding = Sharding::zero1;
    CHECK_THROWS_WITH_AS(build_training_program(o, digits_data()),
                         doctest::Contains("adafactor: adds up squares of whole tensors"), std::invalid_argument);
    for (const auto& [decay, eps2, clip] : {std::tuple{0.1, 1e-3, 1.0}, {-0.8, -1.0, 1.0}, {-0.8, 1e-3, 0.5}}) {
        OptimizerOptions wrong = o.optimizer;
        wrong.beta2_decay = decay, wrong.eps2 = eps2, wrong.update_clip = clip;
        CHECK_THROWS_AS(check(wrong), std::invalid_argument);
    }
}

TEST_CASE("a training by Adafactor learns, on any number of threads, and is resumed") {
    const Scratch scratch;
    const Tool train{AMP_TRAIN};
    for (const auto& c : {std::pair<std::string, double>{"fp32", 0.8}, {"pure-bf16-stochastic", 0.6}}) {
        const std::string& precision = c.first; // clang 14's lambdas cannot use names of a binding
        const double least = c.second;
        CAPTURE(precision);
        const std::string options = "--model mlp --width 32 --optimizer adafactor --lr 0.05 --precision " + precision,
                          runs = " --checkpoint-every 5 --record " + (scratch / precision).string();
        const auto run = [&](const std::string& more) { return train.json(options + more)["runs"][0]; };
        const auto whole = run(" --steps 40 --threads 1");
        CHECK(whole["accuracy"].get<double>() > least);
        CHECK(run(" --steps 40 --threads 3")["fingerprint"] == whole["fingerprint"]);
        REQUIRE(train(options + " --steps 13" + runs).code == 0);
        CHECK(run(" --steps 40 --resume" + runs)["fingerprint"] == whole["fingerprint"]);
    }
    const std::string tape = train("--model mlp --optimizer adafactor --explain").out;
    for (const char* words : {"mean_square", "inverse_root", "adafactor: U = g / sqrt(V)"})
        CHECK(contains(tape, words));
    CHECK(contains(train("--model mlp --optimizer adafactor --replicas 2 --shard zero1").err,
                   "it takes no sharded optimizer"));
}

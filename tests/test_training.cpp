// Whole networks: losses and gradients against PyTorch's, and the same bits whatever the machine has.
#include "sweep.h"

#include <ampscope/sim/program/muon.h>
#include <ampscope/sim/train/configuration.h>
#include <ampscope/sim/train/trainer.h>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <set>

using namespace amp;
using namespace amp::test;

namespace {

/// Of tests/data/torch/training.py.
struct Case {
    const char* name;
    ModelOptions model;
    Dataset data;
};

std::vector<Case> cases(std::uint64_t seed) {
    const ModelOptions gpt{.name = "gpt", .width = 16, .depth = 2, .heads = 2};
    ModelOptions rms = gpt;
    rms.norm = op::NormKind::rms;
    rms.activation = op::ActivationKind::gelu;
    std::vector<Case> all;
    all.push_back({"linear", {.name = "linear"}, regression_data(seed)});
    all.push_back({"mlp", {.name = "mlp", .width = 16, .activation = op::ActivationKind::relu}, digits_data()});
    all.push_back({"cnn", {.name = "cnn", .width = 4, .activation = op::ActivationKind::relu}, digits_data()});
    all.push_back({"gpt", gpt, modular_data(13)});
    all.push_back({"gpt rms gelu", rms, modular_data(13)});
    return all;
}

/// The networks that were added after clipping.json was recorded.
std::vector<Case> later_cases() {
    std::vector<Case> all;
    ModelOptions llama = model("llama").defaults;
    llama.width = 24;
    llama.heads = 6;
    llama.hidden = 40;
    all.push_back({"llama", llama, modular_data(13)});
    llama.kv_heads = 0;
    llama.tied = true;
    llama.rope_theta = 50;
    all.push_back({"llama tied", llama, modular_data(13)});
    ModelOptions resnet = model("resnet").defaults;
    resnet.width = 4;
    all.push_back({"resnet", resnet, digits_data()});
    resnet.norm_groups = 2;
    all.push_back({"resnet group norm", resnet, digits_data()});
    for (const std::size_t network : {1U, 3U}) { // with label smoothing and z-loss
        Case c = cases(0)[network];
        c.model.label_smoothing = 0.1;
        c.model.z_loss = 0.01;
        all.push_back({network == 1U ? "mlp smoothed" : "gpt smoothed", c.model, std::move(c.data)});
    }
    return all;
}

TrainOptions options_of(const Case& c, std::uint64_t seed, double learning_rate, std::int64_t batch) {
    TrainOptions o;
    o.model = c.model;
    o.optimizer = {.kind = OptimizerKind::sgd, .learning_rate = learning_rate};
    o.batch = batch;
    o.seed = seed;
    return o;
}

/// Little-endian floats in base64.
std::vector<float> decode_base64(const std::string& text) {
    constexpr std::string_view letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string bytes;
    std::uint32_t bits = 0;
    int count = 0;
    for (const char c : text) {
        if (c == '=') break;
        bits = bits << 6 | static_cast<std::uint32_t>(letters.find(c));
        count += 6;
        if (count >= 8) bytes += static_cast<char>(bits >> (count -= 8) & 0xff);
    }
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
    return values;
}

double norm(std::span<const float> x) {
    double sum = 0;
    for (const float v : x) sum += static_cast<double>(v) * v;
    return std::sqrt(sum);
}

/// A tensor of `count` numbers of a layer of joined projections, put together from those of the layers apart, or the
/// tensor itself if it is in no such layer. part(name) is empty if there is none: zeros take its place.
template <class Part>
std::vector<float> joined(const std::string& name, std::size_t count, const Part& part) {
    for (const auto& [layer, layers] :
         {std::pair<std::string, std::vector<std::string>>{".qkv.", {".q.", ".k.", ".v."}},
          {".gate_up.", {".gate.", ".up."}}}) {
        const std::size_t at = name.find(layer);
        if (at == std::string::npos) continue;
        std::vector<float> all;
        for (const std::string& apart : layers) {
            std::string of = name;
            std::vector<float> x = part(of.replace(at, layer.size(), apart));
            if (x.empty()) x.resize(count / layers.size());
            all.insert(all.end(), x.begin(), x.end());
        }
        return all;
    }
    return part(name);
}

/// A copy of a tensor of that name.
std::vector<float> tensor_named(const Trainer& trainer, std::string_view name) {
    for (const ParameterTensors& p : trainer.training().parameters)
        for (const TensorId id : {p.weight, p.gradient})
            if (trainer.backend().info(id).name == name) {
                const std::span<const float> x = trainer.backend()[id];
                return {x.begin(), x.end()};
            }
    return {};
}

/// Gives a trainer of joined projections the weights of one that has them apart.
void copy_weights(const Trainer& apart, Trainer& to) {
    for (const ParameterTensors& p : to.training().parameters) {
        const std::span<float> weight = to.backend()[p.weight];
        const std::vector<float> from = joined(to.backend().info(p.weight).name, weight.size(),
                                               [&](const std::string& name) { return tensor_named(apart, name); });
        REQUIRE(from.size() == weight.size());
        std::ranges::copy(from, weight.begin());
    }
}

} // namespace

TEST_CASE("100 losses and the first gradients are PyTorch's") {
    std::ifstream file(AMPSCOPE_TEST_DATA "/torch/training.json"), later(AMPSCOPE_TEST_DATA "/torch/networks.json");
    auto golden = nlohmann::json::parse(file);
    const auto added = nlohmann::json::parse(later);
    for (const auto& c : added["cases"]) golden["cases"].push_back(c);
    const auto seed = golden["seed"].get<std::uint64_t>();
    std::vector<Case> all = cases(seed);
    for (Case& c : later_cases()) all.push_back(std::move(c));
    REQUIRE(golden["cases"].size() == all.size());
    for (std::size_t i = 0, n = all.size(); i < n; ++i) { // decoders once more, with what is fused
        if (!model(all[i].model.name).reads_tokens) continue;
        Case attention = all[i], projections = all[i];
        attention.model.attention = "fused:2x3";
        projections.model.fused_projections = true;
        const auto same = golden["cases"][i];
        for (Case* again : {&attention, &projections}) {
            all.push_back(std::move(*again));
            golden["cases"].push_back(same);
        }
    }
    for (std::size_t i = 0; i < all.size(); ++i) {
        const auto& want = golden["cases"][i];
        REQUIRE(want["name"] == all[i].name);
        CAPTURE(all[i].name);
        Trainer trainer(options_of(all[i], seed, want["learning_rate"], want["batch"]), all[i].data);
        if (all[i].model.fused_projections) {
            Case apart = all[i];
            apart.model.fused_projections = false;
            copy_weights(Trainer(options_of(apart, seed, want["learning_rate"], want["batch"]), apart.data), trainer);
        }
        std::size_t gradients = 0;
        const auto wanted = [&](const std::string& name) {
            gradients += want["gradients"].contains(name) ? 1 : 0;
            return want["gradients"].contains(name) ? decode_base64(want["gradients"][name]) : std::vector<float>();
        };
        for (const auto& loss : want["losses"]) {
            StepResult step = trainer.compute();
            if (step.step == 0)
                for (const ParameterTensors& p : trainer.training().parameters) {
                    const std::string name = trainer.backend().info(p.weight).name;
                    CAPTURE(name);
                    const std::span<const float> got = trainer.backend()[p.gradient];
                    const std::vector<float> expected = joined(name, got.size(), wanted);
                    REQUIRE(got.size() == expected.size());
                    std::vector<float> difference;
                    for (std::size_t j = 0; j < got.size(); ++j) difference.push_back(got[j] - expected[j]);
                    // In gradients of batch and group norm, sums over many pixels, terms cancel, and PyTorch adds them
                    // in FP32.
                    const double bound = all[i].model.name == "resnet" ? 6e-6 : 2e-6;
                    CHECK(norm(difference) <= bound * norm(expected) + 1e-9);
                }
            step = trainer.apply(step);
            CHECK(step.loss == doctest::Approx(loss.get<double>()).epsilon(1e-5));
        }
        CHECK(gradients == want["gradients"].size());
        CHECK(trainer.training().buffers.size() == (want.contains("running") ? want["running"].size() : 0));
        for (const Parameter& b : trainer.training().buffers) {
            const std::string name = trainer.backend().info(b.weight).name;
            CAPTURE(name);
            const auto expected = want["running"][name].get<std::vector<double>>();
            const std::span<const float> got = std::as_const(trainer).backend()[b.weight];
            REQUIRE(got.size() == expected.size());
            for (std::size_t j = 0; j < got.size(); ++j)
                CHECK(got[j] == doctest::Approx(expected[j]).epsilon(1e-3).scale(0.1));
        }
        if (want.contains("validation"))
            CHECK(trainer.evaluate().loss == doctest::Approx(want["validation"].get<double>()).epsilon(1e-4));
    }
}

TEST_CASE("groups of a group norm divide the channels") {
    Program program;
    Graph g(program, precision("fp32"));
    const TensorId d = g.input("d", {4});
    for (const std::int64_t groups : {-2, 0, 3, 8})
        CHECK_THROWS_AS(op::group_norm(g, g.input("x", {2, 4, 3}), d, d, groups), std::invalid_argument);
    CHECK_THROWS_WITH(op::group_norm(g, g.input("x", {2, 4}), d, d, 3),
                      "[group_norm] expected a number of groups that divides 4 channels, got 3");
    CHECK_THROWS_AS(op::group_norm(g, g.input("none", {0, 4}), d, d, 2), std::invalid_argument);
    CHECK_THROWS_WITH(op::group_norm(g, d, d, d, 2), "[group_norm] expected N x C x ... and C, got (4) and (4)");
    Case c{"", model("resnet").defaults, digits_data()};
    for (const std::int64_t groups : {3, 32, -1}) {
        c.model.norm_groups = groups;
        const std::string said =
            fmt::format("[resnet] norm_groups: expected a divisor of the width {}, got {}", c.model.width, groups);
        CHECK_THROWS_WITH(Trainer(options_of(c, 0, 0.1, 4), c.data), said.c_str());
    }
}

TEST_CASE("clipped before or after unscaling, or not at all: 100 losses and gradient norms are PyTorch's") {
    std::ifstream file(AMPSCOPE_TEST_DATA "/torch/clipping.json");
    const auto golden = nlohmann::json::parse(file);
    const auto seed = golden["seed"].get<std::uint64_t>();
    const std::vector<Case> all = cases(seed);
    REQUIRE(golden["cases"].size() == 3 * all.size());
    Tally tally;
    std::size_t number = 0;
    for (const auto& want : golden["cases"]) {
        if (!is_due(number++)) continue;
        const auto c = std::ranges::find(all, want["name"].get<std::string>(), &Case::name);
        REQUIRE(c != all.end());
        TrainOptions o = options_of(*c, seed, want["learning_rate"], want["batch"]);
        o.precision = precision("fp32,scaler=torch");
        o.clip = want["max_norm"].is_null() ? 0 : want["max_norm"].get<double>();
        o.clip_before_unscale = want["before"];
        Trainer trainer(o, c->data);
        int clipped = 0;
        for (std::size_t i = 0; i < want["losses"].size(); ++i) {
            const StepResult step = trainer.step();
            const double norm = want["norms"][i];
            const auto is_near = [](double got, double expected) {
                return got == doctest::Approx(expected).epsilon(1e-5);
            };
            const auto where = [&] { return fmt::format("{}, clipped at {}, step {}", c->name, o.clip, i); };
            tally.expect(step.scale, 65536.0, where);
            tally.expect(is_near(step.loss, want["losses"][i]), true, where);
            tally.expect(is_near(step.gradient_norm, norm), true, where);
            clipped += norm > o.clip ? 1 : 0;
        }
        // Clipping is seen at work: after unscaling in some steps and not in others, before it in all.
        if (o.clip > 0 && !o.clip_before_unscale) CHECK((clipped > 10 && clipped < 90));
        if (o.clip_before_unscale)
            CHECK(want["norms"][99].get<double>() == doctest::Approx(o.clip / 65536).epsilon(1e-4));
    }
    report("losses and gradient norms under clipping, to 1e-5 of PyTorch's", tally);
}

TEST_CASE("validation takes every example once, whatever the batch") {
    const std::uint64_t seed = 3;
    const Case c = cases(seed)[1]; // mlp on digits
    std::vector<Evaluation> results;
    for (const std::int64_t batch : {1, 64, 359, 1000}) {
        Trainer trainer(options_of(c, seed, 0.1, batch), c.data);
        results.push_back(trainer.evaluate());
    }
    for (const Evaluation& e : results) {
        CHECK(e.loss == doctest::Approx(results[0].loss).epsilon(1e-6));
        REQUIRE(e.accuracy);
        CHECK(*e.accuracy == *results[0].accuracy);
    }
}

TEST_CASE("a precision's text alone decides how new weights are rounded and which loss scaler there is") {
    const Dataset data = digits_data();
    std::set<std::string> bits;
    for (const char* name :
         {"pure-bf16", "pure-bf16-stochastic", "pure-bf16-stochastic,update-random-bits=4", "pure-bf16-kahan"}) {
        CAPTURE(name);
        TrainOptions o{.precision = precision(name), .batch = 8};
        o.model = {.name = "mlp", .width = 8};
        Trainer trainer(o, data, 1);
        for (int i = 0; i < 3; ++i) trainer.step();
        CHECK(bits.insert(fingerprint_of(trainer)).second);
    }
    for (const PrecisionRow& row : precisions()) {
        CAPTURE(row.name);
        const bool scales = row.name == "amp-fp16" || row.name == "master-fp16";
        TrainOptions o{.precision = precision(row.name)};
        o.model = {.name = "mlp", .width = 8};
        CHECK((Trainer(o, data, 1).step().scale > 1) == scales);
    }
    TrainOptions plain; // FP32, and nothing scales its loss
    plain.model.name = "mlp";
    CHECK(Trainer(plain, data, 1).step().scale == 1);
}

TEST_CASE("joined projections compute what they do apart") {
    for (const std::string name : {"gpt", "llama"}) {
        CAPTURE(name);
        const std::string layers = name == "gpt" ? "h.0." : "h.0.mlp.";
        Case c{name.c_str(), model(name).defaults, modular_data(13)};
        c.model.depth = 1; // gradients of what lies before add up in another order
        TrainOptions o = options_of(c, 0, 0.1, 8), fused = o;
        fused.model.fused_projections = true;
        Trainer apart(o, c.data), together(fused, c.data);
        copy_weights(apart, together);
        CHECK(apart.compute().loss == together.compute().loss);
        int compared = 0;
        for (const ParameterTensors& p : together.training().parameters) {
            const std::string weight = together.backend().info(p.weight).name;
            if (!weight.starts_with(layers) || weight.find("ln1") != std::string::npos ||
                weight.find("qkv.b") != std::string::npos)
                continue;
            CAPTURE(weight);
            const std::string gradient = together.backend().info(p.gradient).name;
            const std::span<const float> got = together.backend()[p.gradient];
            CHECK(std::ranges::equal(
                got, joined(gradient, got.size(), [&](const std::string& of) { return tensor_named(apart, of); })));
            ++compared;
        }
        CHECK(compared == (c.model.name == "gpt" ? 9 : 2)); // but for the keys' bias
        // Muon updates a joined weight as one matrix.
        const std::vector<TensorId> hidden = hidden_matrices(together.training().program, together.training().initial);
        CHECK(std::ranges::count_if(hidden, [&](TensorId id) {
                  const std::string& weight = together.backend().info(id).name;
                  return weight.find("qkv.w") != std::string::npos || weight.find("gate_up.w") != std::string::npos;
              }) == (c.model.name == "gpt" ? 1 : 2));
        // One scale for all three: other results.
        o.precision = fused.precision = precision("fp8-current");
        Trainer apart8(o, c.data), together8(fused, c.data);
        copy_weights(apart8, together8);
        CHECK(apart8.compute().loss != together8.compute().loss);
    }
}

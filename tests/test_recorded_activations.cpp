// amp-train --record-activations: what is recorded are the outputs of layers and the weights that made them, recomputed
// here by plain loops; nothing else of the run changes, and no tool takes them for gradients.
#include "recorded_files.h"
#include "tool.h"

#include <ampscope/sim/analysis/histogram_log.h>
#include <ampscope/sim/findings/adam.h>
#include <ampscope/sim/findings/comparison.h>
#include <ampscope/sim/findings/histogram.h>
#include <ampscope/sim/findings/loss_scale.h>
#include <ampscope/sim/io/recording.h>

#include <cmath>
#include <cstring>
#include <map>

using namespace amp;
using namespace amp::test;

namespace {

const Tool train{AMP_TRAIN}, histogram{AMP_HISTOGRAM}, report{AMP_REPORT};
const std::string small =
    "--model mlp --activation relu --width 6 --depth 3 --batch 8 --threads 1 --seed 3 --record-every 2 "
    "--precision fp32,amp-fp16,fp8-current --steps 5 ";

/// Runs that differ only in what they record.
struct Runs {
    Scratch scratch;
    fs::path plain = scratch / "plain", forward = scratch / "forward", state = scratch / "state";

    Runs() {
        REQUIRE(train(small + "--record " + plain.string()).code == 0);
        REQUIRE(train(small + "--record-activations --record " + forward.string()).code == 0);
        REQUIRE(train(small + "--record-activations --record-state --record " + state.string()).code == 0);
    }
};

struct Recorded {
    std::map<std::string, std::vector<float>> values;
    std::map<std::string, std::string> dtypes;
    std::map<std::string, std::string> metadata;
};

/// The tensors of a file in FP32, FP16 or BF16.
Recorded tensors_of(const fs::path& path) {
    Recorded r;
    const auto file = open_tensor_file(path);
    r.metadata = file->metadata();
    for (std::size_t i = 0; i < file->tensors().size(); ++i) {
        const TensorEntry& t = file->tensors()[i];
        r.dtypes[t.name] = std::string(info(t.dtype).name);
        std::vector<float>& values = r.values[t.name];
        const std::string bytes = tensor_bytes(*file, i);
        for (std::size_t j = 0; j < t.count; ++j) {
            if (t.dtype == DType::f32) {
                values.push_back(0);
                std::memcpy(&values.back(), bytes.data() + 4 * j, 4);
            } else if (t.dtype == DType::f16) { // not subnormal in these runs, or zero
                std::uint16_t code = 0;
                std::memcpy(&code, bytes.data() + 2 * j, 2);
                const int e = code >> 10 & 31, m = code & 1023;
                const float magnitude =
                    e == 0 ? std::ldexp(static_cast<float>(m), -24) : std::ldexp(static_cast<float>(1024 + m), e - 25);
                values.push_back((code & 0x8000) != 0 ? -magnitude : magnitude);
            }
        }
    }
    return r;
}

/// relu(x w^T + b), a chain of fused multiply-adds in FP32 in the order of the inputs, then the bias.
std::vector<float> layer(const std::vector<float>& x, const std::vector<float>& w, const std::vector<float>& b,
                         bool relu) {
    const std::size_t outputs = b.size(), inputs = w.size() / outputs;
    std::vector<float> y;
    for (std::size_t row = 0; row < x.size() / inputs; ++row)
        for (std::size_t o = 0; o < outputs; ++o) {
            float sum = 0;
            for (std::size_t i = 0; i < inputs; ++i) sum = std::fma(x[row * inputs + i], w[o * inputs + i], sum);
            sum += b[o];
            y.push_back(relu && !(sum > 0) ? 0 : sum);
        }
    return y;
}

std::map<std::string, std::size_t> kinds_in(const fs::path& run) {
    std::map<std::string, std::size_t> numbers;
    for (const RecordedTensor& t : find_tensors({run}).tensors) ++numbers[std::string(name_of(t.kind))];
    return numbers;
}

} // namespace

TEST_CASE("recorded outputs are what the recorded weights make of the layer before, bit for bit") {
    const Runs runs;
    for (const char* step : {"step_000000", "step_000002", "step_000004"}) {
        const Recorded r = tensors_of(runs.forward / "fp32/gradients" / (std::string(step) + ".safetensors"));
        const Recorded state = tensors_of(runs.state / "fp32/state" / (std::string(step) + ".safetensors"));
        for (const char* name : {"h.0.weight", "h.1.weight", "h.1.bias", "head.weight"})
            CHECK(r.values.at(name) == state.values.at(name)); // before the step
        const auto made_of = [&](const std::string& before, const std::string& name, bool relu) {
            return layer(r.values.at(before + ".out"), r.values.at(name + ".weight"), r.values.at(name + ".bias"),
                         relu);
        };
        CHECK(made_of("h.0", "h.1", true) == r.values.at("h.1.out"));
        CHECK(made_of("h.1", "h.2", true) == r.values.at("h.2.out"));
        CHECK(made_of("h.2", "head", false) == r.values.at("head.out"));
        CHECK(r.values.at("head.out").size() == 80);
        CHECK(r.values.at("head.out.grad").size() == 80);
    }
    // Under autocast in the format in which the output is kept: that of the product.
    const Recorded half = tensors_of(runs.forward / "amp-fp16/gradients/step_000002.safetensors");
    CHECK(half.dtypes.at("h.1.out") == "F16");
    CHECK(half.dtypes.at("h.1.weight") == "F32"); // the master weight
}

TEST_CASE("the residual stream is recorded, whose gradient is that of what was added to it last") {
    const Scratch scratch;
    REQUIRE(train("--model gpt --width 8 --depth 3 --heads 2 --batch 4 --threads 1 --steps 1 --record-every 1 "
                  "--precision fp32 --record-activations --record " +
                  (scratch / "runs").string())
                .code == 0);
    const Recorded r = tensors_of(scratch / "runs/fp32/gradients/step_000000.safetensors");
    CHECK(r.values.count("h.0.residual.out") == 1);
    CHECK(r.values.count("h.0.residual.out.grad") == 0);
    for (const std::string block : {"1", "2"}) {
        const std::vector<float>&before = r.values.at("h." + std::to_string(std::stoi(block) - 1) + ".residual.out"),
              &attn = r.values.at("h." + block + ".attn.out"), &mlp = r.values.at("h." + block + ".mlp.out"),
              &after = r.values.at("h." + block + ".residual.out");
        REQUIRE(before.size() == after.size());
        std::size_t differ = 0;
        for (std::size_t i = 0; i < before.size(); ++i) differ += before[i] + attn[i] + mlp[i] != after[i] ? 1U : 0U;
        CHECK(differ == 0);
    }
    // What linear layers read, which FP8 recipes cast, is there, too.
    const auto made_of = [&](const std::string& input, const std::string& name) {
        return layer(r.values.at(input + ".out"), r.values.at(name + ".weight"), r.values.at(name + ".bias"), false);
    };
    for (const std::string block : {"h.0", "h.1", "h.2"}) {
        CHECK(made_of(block + ".attn.context", block + ".attn.o") == r.values.at(block + ".attn.out"));
        CHECK(made_of(block + ".mlp.hidden", block + ".mlp.down") == r.values.at(block + ".mlp.out"));
        CHECK(r.values.count(block + ".ln1.out") == 1);
        const std::vector<float> up = made_of(block + ".ln2", block + ".mlp.up"),
                                 &hidden = r.values.at(block + ".mlp.hidden.out");
        REQUIRE(up.size() == hidden.size());
        std::size_t odd = 0;
        for (std::size_t i = 0; i < up.size(); ++i) {
            const double x = up[i], inner = std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x),
                         want = x * (1 + std::tanh(inner)) / 2;
            odd += std::abs(hidden[i] - want) > 1e-6 * std::abs(want) ? 1U : 0U;
        }
        CHECK(odd == 0);
    }
    CHECK(made_of("ln_f", "head") == r.values.at("head.out"));
}

TEST_CASE("metadata and histograms state the kinds; only gradients contain the loss scale") {
    const Runs runs;
    CHECK(kinds_in(runs.plain / "amp-fp16") ==
          std::map<std::string, std::size_t>{{"weight_gradient", 24}, {"activation_gradient", 12}});
    const std::map<std::string, std::size_t> all = {
        {"weight", 24}, {"weight_gradient", 24}, {"activation", 12}, {"activation_gradient", 12}};
    CHECK(kinds_in(runs.forward / "amp-fp16") == all);
    std::map<std::string, std::size_t> without_weights = all;
    without_weights.erase("weight"); // they are in state/
    CHECK(kinds_in(runs.state / "amp-fp16") == without_weights);

    for (const RecordedTensor& t : find_tensors({runs.forward / "amp-fp16"}).tensors)
        CHECK(t.recorded_scale == (is_gradient(t.kind) ? 65536 : 1));
    for (const fs::path& runs_of : {runs.forward, runs.state}) {
        std::map<std::string, std::size_t> lines;
        std::vector<std::string> warnings;
        read_histogram_log(
            runs_of / "amp-fp16/histograms.jsonl",
            [&](const RecordedMagnitudes& m) {
                ++lines[std::string(name_of(m.kind))];
                CHECK(m.scale == (is_gradient(m.kind) ? 65536 : 1));
            },
            warnings);
        CHECK(lines == all);
    }
    // The largest output of a layer, by a plain look at the numbers, and by amp-histogram.
    double largest = 0;
    for (const char* step : {"step_000000", "step_000002", "step_000004"})
        for (const auto& [name, values] :
             tensors_of(runs.forward / "amp-fp16/gradients" / (std::string(step) + ".safetensors")).values)
            if (name.ends_with(".out"))
                for (const float x : values) largest = std::max(largest, std::abs(static_cast<double>(x)));
    const nlohmann::json said = histogram.json((runs.forward / "amp-fp16").string() + " --kind activation");
    CHECK(said["total"]["max"] == largest);
    CHECK(said["total"]["recorded_scale"] == 1);
    CHECK(said["kinds"].size() == 1);
    CHECK(said["kinds"][0]["name"] == "activations");
    CHECK(said["other_kinds"] == nlohmann::json{"weight", "weight_gradient", "activation_gradient"});
    // Weights are found beside gradients or in state/, once each.
    for (const fs::path& runs_of : {runs.forward, runs.state}) {
        const nlohmann::json weights = histogram.json((runs_of / "amp-fp16").string() + " --kind weight");
        CHECK(weights["tensors"].size() == 24);
    }
}

TEST_CASE("nothing else of a run changes, and no question about gradients has another answer") {
    const Runs runs;
    for (const char* name : {"fp32", "amp-fp16", "fp8-current"}) {
        const fs::path plain = runs.plain / name, forward = runs.forward / name;
        CHECK(read_file(plain / "metrics.jsonl") == read_file(forward / "metrics.jsonl"));
        const Recorded few = tensors_of(plain / "gradients/step_000004.safetensors"),
                       many = tensors_of(forward / "gradients/step_000004.safetensors");
        for (const auto& [tensor, values] : few.values) CHECK(many.values.at(tensor) == values);

        HistogramOptions options;
        options.formats = {format("fp16"), format("e5m2")};
        const HistogramFindings a = histogram_findings({plain}, options), b = histogram_findings({forward}, options);
        CHECK(a.total.magnitudes.histogram == b.total.magnitudes.histogram);
        CHECK(a.kinds.front().advice == b.kinds.front().advice);

        const AdamFindings x = adam_findings(plain, standard_adam_options()),
                           y = adam_findings(forward, standard_adam_options());
        CHECK(x.tensors.size() == y.tensors.size());
        CHECK(x.advice == y.advice);

        LossScaleOptions scalers;
        scalers.scalers = {named_scaler("torch")};
        const LossScaleFindings p = loss_scale_findings(plain, scalers), q = loss_scale_findings(forward, scalers);
        REQUIRE(p.log.steps.size() == q.log.steps.size());
        for (std::size_t i = 0; i < p.log.steps.size(); ++i) {
            CHECK(p.log.steps[i].magnitudes == q.log.steps[i].magnitudes);
            CHECK(p.log.steps[i].largest == q.log.steps[i].largest);
        }
        CHECK(p.advice == q.advice);
    }
    const ComparisonFindings plain = comparison_findings({runs.plain}, {}),
                             forward = comparison_findings({runs.forward}, {});
    CHECK(plain.verdict == forward.verdict);
    for (std::size_t i = 0; i < plain.runs.size(); ++i) {
        CHECK(plain.runs[i].magnitudes == forward.runs[i].magnitudes);
        CHECK(plain.runs[i].tensors.size() == forward.runs[i].tensors.size());
        CHECK(plain.runs[i].kinds.empty());
        REQUIRE(forward.runs[i].kinds.size() == 3);
    }
}

TEST_CASE("the error of the first gradients is the distance of the recorded ones from FP32's") {
    const Runs runs;
    const std::string first = "gradients/step_000000.safetensors";
    const Recorded exact = tensors_of(runs.plain / "fp32" / first);
    for (const std::string name : {"amp-fp16", "fp8-current"}) {
        const Recorded r = tensors_of(runs.plain / name / first);
        const double scale = std::stod(r.metadata.at("loss_scale"));
        double error = 0, size = 0;
        for (const auto& [tensor, values] : exact.values) {
            if (tensor.ends_with(".out.grad")) continue;
            CHECK(r.dtypes.at(tensor) == "F32");
            for (std::size_t i = 0; i < values.size(); ++i) {
                const double x = values[i], d = r.values.at(tensor).at(i) / scale - x;
                error += d * d;
                size += x * x;
            }
        }
        CAPTURE(name);
        CHECK(error > 0);
        const double said = nlohmann::json::parse(read_file(runs.plain / name / "result.json"))["gradient_error"];
        CHECK(said == doctest::Approx(std::sqrt(error / size)).epsilon(1e-6));
    }
}

TEST_CASE("a report judges weights, activations and gradients apart, by the fits that amp-histogram counts") {
    const Runs runs;
    const fs::path run = runs.forward / "fp32";
    const nlohmann::json said = report.json(run.string());
    const nlohmann::json& kinds = said["groups"][0]["kinds"];
    REQUIRE(kinds.size() == 3);
    const std::map<std::string, std::string> kinds_of = {
        {"gradients", "weight_gradient,activation_gradient"}, {"weights", "weight"}, {"activations", "activation"}};
    for (const nlohmann::json& kind : kinds) {
        const std::string name = kind["name"];
        const nlohmann::json of_tensors =
            histogram.json(run.string() + " --format fp16,e4m3,e5m2 --kind " + kinds_of.at(name));
        for (const auto& [format, fit] : kind["formats"].items()) {
            CHECK(format == (name == "gradients" ? "e5m2" : format == "fp16" ? "fp16" : "e4m3"));
            const nlohmann::json& at_one = of_tensors["total"]["formats"][format]["scales"][0];
            CHECK(fit["unscaled"]["underflow"] == at_one["underflow"]);
            CHECK(fit["unscaled"]["overflow"] == at_one["overflow"]);
            if (name == "gradients") continue;
            const nlohmann::json& same = of_tensors["total"]["formats"][format]["fit"];
            for (const char* key : {"tensors", "overflowing", "held", "held_scaled", "log2_scales", "scaled"})
                CHECK(fit[key] == same[key]);
        }
    }
    const Outcome page = report(run.string() + " --html -");
    CHECK(page.code == 0);
    CHECK(contains(page.out, "Forward and backward formats"));
    CHECK(!contains(report((runs.plain / "fp32").string() + " --html -").out, "Forward and backward formats"));
}

TEST_CASE("a resumed run records the bytes of one that nobody interrupted") {
    const Scratch scratch;
    const std::string options = "--model mlp --width 4 --batch 8 --threads 1 --record-every 3 --record-activations "
                                "--precision amp-fp16 --checkpoint-every 2 ";
    const fs::path whole = scratch / "whole", parts = scratch / "parts";
    REQUIRE(train(options + "--steps 10 --record " + whole.string()).code == 0);
    REQUIRE(train(options + "--steps 5 --record " + parts.string()).code == 0);
    REQUIRE(train(options + "--steps 10 --resume --record " + parts.string()).code == 0);
    std::size_t compared = 0;
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(whole)) {
        const fs::path name = fs::relative(entry.path(), whole);
        if (!entry.is_regular_file() || contains(name.string(), "checkpoints")) continue;
        CAPTURE(name.string());
        CHECK(read_file(entry.path()) == read_file(parts / name));
        ++compared;
    }
    CHECK(compared == 8); // four files of tensors, two logs, run.json and result.json
    train.check_error(options + "--steps 12 --resume --record " + parts.string() + " --record-state", 1,
                      {"/recording"});
    fs::create_directories(scratch / "old");
    fs::copy(fs::path(AMPSCOPE_TEST_DATA) / "run_v1", scratch / "old/amp-fp16", fs::copy_options::recursive);
    train.check_error("--model mlp --width 4 --depth 2 --steps 5 --precision amp-fp16 --record-every 2 --record-state "
                      "--seed 1 --resume --record " +
                          (scratch / "old").string(),
                      1, {"/schema_version differs from this run's: resume with the program it began with"});
}

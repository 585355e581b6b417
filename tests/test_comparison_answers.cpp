// The verdict at a glance: which format, loss scale and eps in a few words, "unknown" where the runs do not tell, and
// alarms. What is said is checked against runs whose losses and gradients are known.
#include "recorded_files.h"
#include "report_runs.h"

#include <ampscope/sim/findings/comparison.h>

#include <map>

using namespace amp;
using namespace amp::test;

namespace {

namespace fs = std::filesystem;
using State = ShortAnswer::State;

std::vector<ShortAnswer> answers_of(const fs::path& runs) { return comparison_findings({runs}, {}).answers; }

/// Three seeds of a precision, whose losses end `over` above 2.
void write_seeds(const fs::path& runs, const std::string& precision, const std::string& model, double over,
                 int tensors = 0, int exponent = 0) {
    for (int seed = 0; seed < 3; ++seed)
        write_run(runs / model / (precision + std::to_string(seed)), configuration(precision, model, seed), 40, tensors,
                  exponent, "layer", 2 + over + 0.001 * seed);
}

} // namespace

TEST_CASE("the format that holds in every network, and why") {
    const Scratch scratch;
    for (const char* model : {"cnn", "gpt"}) {
        write_seeds(scratch / "runs", "fp32", model, 0, 3, -10);
        write_seeds(scratch / "runs", "amp-bf16", model, 0.001);
        write_seeds(scratch / "runs", "pure-bf16", model, 0.5);
    }
    const std::vector<ShortAnswer> answers = answers_of(scratch / "runs");
    REQUIRE(answers.size() == 3);
    CHECK(answers[0].question == "Format");
    CHECK(answers[0].words == "amp-bf16");
    CHECK(answers[0].reason == "It ends within the margin of FP32 (cnn on data: loss +0.001, margin 0.02; gpt on data: "
                               "loss +0.001, margin 0.02) and needs no loss scale.");
    CHECK(answers[0].state == State::settled);
    // The gradients are 2^-12 at least, which a scale of 2^-13 would bring to 2^-25, a tie that becomes zero; and below
    // 1.75 x 2^-10 (a leading one in the fraction, no second), which 2^25 brings below 65520, the first to overflow.
    CHECK(answers[1].question == "Loss scale");
    CHECK(answers[1].words == "none needed");
    CHECK(answers[1].reason.starts_with("Safe from 2^-12 to 2^25: no gradient overflows, and less than 0.1 % become"));
    CHECK(answers[1].state == State::settled);
    CHECK(answers[2].question == "Adam's eps");
    CHECK(answers[2].words == "unknown"); // histograms tell no steps
    CHECK(answers[2].reason == "No gradients of weights were recorded as tensors.");
    CHECK(answers[2].state == State::open);
}

TEST_CASE("where networks differ, the answers say both") {
    const Scratch scratch;
    write_seeds(scratch / "runs", "fp32", "cnn", 0, 3, -30);
    write_seeds(scratch / "runs", "a", "cnn", 0.001);
    write_seeds(scratch / "runs", "b", "cnn", 0.5);
    write_seeds(scratch / "runs", "fp32", "gpt", 0, 3, -20);
    write_seeds(scratch / "runs", "a", "gpt", 0.5);
    write_seeds(scratch / "runs", "b", "gpt", 0.001);
    const std::vector<ShortAnswer> answers = answers_of(scratch / "runs");
    CHECK(answers[0].words == "a (cnn on data); b (gpt on data)");
    CHECK(answers[0].reason == "No format holds in every network.");
    CHECK(answers[0].state == State::settled);
    CHECK(answers[1].words.starts_with("FP16: 2^"));
    CHECK(answers[1].reason.find(" BF16 needs none. Each network alone: cnn on data 2^") != std::string::npos);
    SUBCASE("nothing holds anywhere") {
        write_seeds(scratch / "bad", "fp32", "cnn", 0);
        write_seeds(scratch / "bad", "b", "cnn", 0.5);
        const ShortAnswer format = answers_of(scratch / "bad").front();
        CHECK(format.words == "FP32");
        CHECK(format.reason == "No other format holds.");
        CHECK(format.state == State::settled);
    }
}

TEST_CASE("what the runs do not tell is unknown, and why") {
    const Scratch scratch;
    write_run(scratch / "alone", configuration("amp-fp16"), 40, 0, 0);
    const std::vector<ShortAnswer> alone = answers_of(scratch / "alone");
    CHECK(alone[0].words == "unknown");
    CHECK(alone[0].reason.starts_with("One run alone, in amp-fp16, does not tell"));
    CHECK(alone[1].words == "unknown");
    CHECK(alone[1].reason == "No gradient that is finite and not zero was recorded.");

    nlohmann::ordered_json own = nlohmann::ordered_json::parse(configuration("amp-fp16"));
    own["tool"] = "amp-train";
    own["model"] = {{"name", "gpt"}, {"width", 16}, {"depth", 2}, {"heads", 4}, {"activation", "relu"}};
    own["optimizer"] = {{"lr", 3e-4}};
    own["loss_weight"] = 1.0;
    write_run(scratch / "trained", own.dump(), 40, 0, 0);
    const std::string command = comparison_findings({scratch / "trained"}, {}).verdict.front();
    CAPTURE(command);
    CHECK(command.find("amp-train --model gpt --width 16 --activation relu --lr 0.0003 --steps 40 --precision "
                       "fp32,amp-fp16") != std::string::npos);

    write_run(scratch / "two/fp32", configuration("fp32"), 40, 0, 0);
    write_run(scratch / "two/amp-bf16", configuration("amp-bf16"), 40, 0, 0, "", 2.0001);
    const ShortAnswer one_seed = answers_of(scratch / "two").front();
    CHECK(one_seed.words == "unknown");
    CHECK(one_seed.reason.starts_with("One seed: differences below "));
    CHECK(one_seed.state == State::open);

    write_seeds(scratch / "same", "amp-bf16", "net", 0);
    write_seeds(scratch / "same", "amp-fp16", "net", 0);
    CHECK(answers_of(scratch / "same").front().reason ==
          "None of these runs is in FP32, so there is nothing to compare with.");

    const std::vector<ShortAnswer> files = answers_of(AMP_SAMPLE "/deep_tanh");
    CHECK(files[0].words == "unknown");
    CHECK(files[0].reason ==
          "No run is among these; by their range alone these hold: bf16 unscaled, fp16 at loss scale "
          "2^17, e5m2 and e4m3 at no single loss scale.");
    CHECK(files[1].words == "FP16: 2^17");
    CHECK(files[1].reason ==
          "Safe from 2^17 to 2^19: no gradient overflows, and less than 0.1 % become zero. BF16 needs none.");
    CHECK(files[2].words == "1e-09"); // as the verdict: eps 1e-08 decides too many steps
    CHECK(files[2].reason.starts_with("1e-08 decides "));
    const ComparisonFindings sample = comparison_findings({AMP_SAMPLE "/deep_tanh"}, {});
    CHECK(sample.verdict[2].find("; 1e-09 would decide ") != std::string::npos);
    CHECK(files[2].state == State::settled);
}

TEST_CASE("what is wrong with the training is an alarm") {
    const Scratch scratch;
    write_seeds(scratch / "runs", "fp32", "net", 0);
    write_seeds(scratch / "runs", "amp-fp16", "net", 0.001);
    CHECK(answers_of(scratch / "runs").size() == 3);
    write_run(scratch / "runs/net/breaks", configuration("pure-fp16", "net"), 40, 0, 0, "", NAN);
    std::ofstream(scratch / "runs/net/amp-fp161/result.json")
        << Json{{"warnings", {"train.py:7: clip_grad_norm_() before unscale_()", "train.py:9: no step?"}}}.dump();
    const std::vector<ShortAnswer> answers = answers_of(scratch / "runs");
    REQUIRE(answers.size() == 5);
    CHECK(answers[3].question == "Training loop");
    CHECK(answers[3].words == "2 warnings");
    CHECK(answers[3].reason.ends_with("amp-fp161: train.py:7: clip_grad_norm_() before unscale_(). And 1 more."));
    CHECK(answers[3].state == State::alarm);
    std::ofstream(scratch / "runs/net/amp-fp161/result.json") << Json{{"warnings", {"Is enabled= inverted?"}}}.dump();
    CHECK(answers_of(scratch / "runs")[3].reason.ends_with("amp-fp161: Is enabled= inverted?"));
    CHECK(answers[4].question == "Stability");
    CHECK(answers[4].words == "NaN or infinite");
    CHECK(answers[4].reason == "pure-fp16 (1 of 1 run).");
    CHECK(answers[4].state == State::alarm);
}

TEST_CASE("recorded gradients that are NaN or infinite are an alarm, unless a loss scaler skipped the step") {
    const Scratch scratch;
    const auto write = [&](const fs::path& folder, const std::map<std::string, std::string>& metadata = {}) {
        for (const int step : {0, 1, 2})
            save(folder / ("step_00000" + std::to_string(step) + ".safetensors"),
                 {{"b.weight.grad", {1, step == 2 ? NAN : 1}}, {"a.weight.grad", {1, step > 0 ? INFINITY : 1}}},
                 metadata);
    };
    write(scratch / "files");
    const ComparisonFindings found = comparison_findings({scratch / "files"}, {});
    REQUIRE(found.answers.size() == 4);
    CHECK(found.answers[1].reason.find("no finite gradient overflows") != std::string::npos);
    CHECK(found.answers[3].question == "Stability");
    CHECK(found.answers[3].state == State::alarm);
    CHECK(found.answers[3].reason.ends_with("files (1 of 1 run). The first tensor is a.weight.grad, in step 1."));
    REQUIRE(found.alarms.size() == 1);
    CHECK(
        found.alarms[0].find(": a recorded gradient was NaN or infinite from step 1 on; the first tensor that was not "
                             "finite is a.weight.grad, in step 1") != std::string::npos);
    CHECK(found.verdict.at(1).ends_with(
        " 3 of the 12 elements are NaN or infinite as recorded; this is about the others."));
    CHECK(found.verdict.at(2).find("in every format, as the gradients themselves are from step 1 on, first in "
                                   "a.weight.grad") != std::string::npos);
    CHECK(found.verdict.at(3).starts_with("Stability: NaN or infinite: "));

    write(scratch / "scaled", {{"loss_scale", "1024"}}); // a scaler skips them, as it should
    CHECK(comparison_findings({scratch / "scaled"}, {}).alarms.empty());
    write(scratch / "run/gradients");
    const auto alarms = [&](const char* said) {
        write_run(scratch / "run", configuration("amp-fp16"), 3, 0, 0);
        fs::remove(scratch / "run/histograms.jsonl"); // the files will be measured
        std::ofstream metrics(scratch / "run/metrics.jsonl");
        for (int step = 0; step < 3; ++step)
            metrics << "{\"step\":" << step << R"(,"loss":1,"scale":1,"found_inf":)" << (step > 0 ? said : "false")
                    << "}\n";
        metrics.close();
        return comparison_findings({scratch / "run"}, {}).alarms;
    };
    CHECK(alarms("true").empty());
    REQUIRE(alarms("false").size() == 1); // the log does not say it, the gradients do
    CHECK(alarms("false")[0].find("from step 1 on; the first tensor that was not finite is a.weight.grad") !=
          std::string::npos);
    REQUIRE(alarms("true,\"skipped\":false").size() == 1); // the log says it, so it is said once
}

// What a report says of runs that cannot answer by themselves: of one that is alone, of optimizers other than Adam; and
// of effects that others report.
#include <ampscope/sim/findings/comparison.h>
#include <ampscope/sim/findings/gradient_log.h>

#include "recorded_files.h"
#include "report_runs.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

using namespace amp;
using namespace amp::test;
namespace fs = std::filesystem;

namespace {

/// A run folder with losses and gradients; `json` is what its run.json holds beside the version.
fs::path run_with(const fs::path& folder, const std::string& json) {
    fs::create_directories(folder / "gradients");
    write_file(folder / "run.json", fmt::format("{{\"schema_version\":2,{}}}\n", json));
    std::string steps;
    for (int step = 0; step < 20; ++step)
        steps += fmt::format("{{\"step\":{},\"loss\":1.0,\"scale\":1,\"found_inf\":false}}\n", step);
    write_file(folder / "metrics.jsonl", steps);
    save(folder / "gradients/step_000000.safetensors", {{"w.weight.grad", {0.5F, 0.25F, 1e-3F, 1e-4F}}});
    return folder;
}

std::string precision(const std::string& name) { return fmt::format(R"("precision":{{"name":"{}"}})", name); }

std::string all_of(const ComparisonFindings& findings) { return fmt::format("{}", fmt::join(findings.verdict, "\n")); }

} // namespace

TEST_CASE("a run that is alone is told what would answer, not to stay in FP32") {
    const Scratch scratch;
    const std::string trained = R"("tool":"amp-train","model":{"name":"gpt"},"seed":7,)",
                      recorded = R"("tool":"ampscope.torch","model":{"name":"Net"},"seed":11,)";
    const auto said = [&](const std::string& json) {
        const fs::path run = run_with(scratch / "run", json);
        const std::string text = comparison_findings({run}, {}).verdict.front();
        CAPTURE(text);
        CHECK(contains(text, "Format: one run alone, in "));
        CHECK(!contains(text, "stay in FP32"));
        CHECK(!contains(text, "no other"));
        return text;
    };
    CHECK(contains(said(trained + precision("amp-fp16")),
                   "does not tell whether it trains as well as FP32 would. Train both, with what else was given as it "
                   "was: amp-train --model gpt --steps 20 --precision fp32,amp-fp16 --seed 7 --record RUNS; then ask: "
                   "amp-report RUNS."));
    CHECK(contains(said(trained + precision("fp32")), "whether another format would do. Train both"));
    CHECK(contains(said(trained + precision("fp32")), "--precision fp32,amp-bf16,amp-fp16 --seed 7"));
    const std::string torch = said(recorded + precision("amp-bf16"));
    CHECK(contains(torch,
                   "Train it again in FP32 (in PyTorch: without autocast and without a loss scaler) from the same "
                   "seed (11), record that into another folder, and ask about both: amp-report "));
    CHECK(contains(torch, "/run OTHER."));
    CHECK(contains(said(recorded + precision("fp32")), "under torch.autocast with dtype=torch.bfloat16"));
    // Two runs are not alone.
    const fs::path a = run_with(scratch / "a", precision("fp32")), b = run_with(scratch / "b", precision("amp-bf16"));
    CHECK(!contains(comparison_findings({a, b}, {}).verdict.front(), "alone"));
}

TEST_CASE("runs of SGD hear nothing of Adam's eps, as amp-train and the recorder write it") {
    const Scratch scratch;
    const auto lines = [&](const std::string& optimizer) {
        const fs::path run = run_with(scratch / "run", precision("fp32") + optimizer);
        const ComparisonFindings findings = comparison_findings({run}, {});
        CHECK(findings.groups.front().adam.has_value() == contains(all_of(findings), "Adam:"));
        for (const std::string& note : findings.groups.front().notes) CHECK(!contains(note, "Adam"));
        return std::ranges::count_if(findings.verdict, [](const std::string& s) { return s.starts_with("Adam:"); });
    };
    CHECK(lines("") == 1);
    CHECK(lines(R"(,"optimizer":{"kind":"adamw","lr":0.001})") == 1);
    CHECK(lines(R"(,"optimizer":{"kind":"adam","order":"torch","lr":0.001})") == 1);
    CHECK(lines(R"(,"optimizer":{"kind":"sgd","lr":0.1})") == 0);
    CHECK(lines(R"(,"optimizer":{"kind":"sgd","order":"torch","lr":0.1})") == 0);
}

TEST_CASE("a log knows the format in which backward computed, which is not the one it is asked about") {
    const Scratch scratch;
    const std::string bf16 = R"("precision":{"name":"amp-bf16","autocast":{"format":"bf16"}})",
                      pure = R"("precision":{"name":"pure-fp16","formats":{"gradients":"fp16"}})";
    CHECK(read_gradient_log(run_with(scratch / "run", bf16), {}).backward == "bf16");
    CHECK(read_gradient_log(run_with(scratch / "run", pure), {}).backward == "fp16");
    CHECK(read_gradient_log(run_with(scratch / "run", R"("tool":"mine")"), {}).backward.empty());
}

TEST_CASE("what others report is looked for, told from nothing or not, and measured against the distance from FP32") {
    const Scratch scratch;
    for (int seed = 0; seed < 3; ++seed)
        for (const auto& [precision, over] : {std::pair("fp32", 0.0),
                                              {"nvfp4-plain", 0.03},
                                              {"quartet2", 0.03},
                                              {"nvfp4", 0.01},
                                              {"nvfp4-plain,scaling-hadamard=te", 0.04}})
            write_run(scratch / "runs" / (precision + std::to_string(seed)), configuration(precision, "net", seed), 20,
                      0, 0, "",
                      2 + 0.1 * seed + over + (precision == std::string("quartet2") ? 0.001 * (seed - 1) : 0));
    const Json json = Tool{AMP_REPORT}.json((scratch / "runs").string()), effects = json["groups"][0]["effects"];
    REQUIRE(effects.size() == 4);
    const auto said = [&](std::size_t i) { return json["effects"][i].get<std::string>(); };
    for (const Json& effect : effects)
        CHECK(effect["reported_by"].get<std::string>().find("arXiv:") != std::string::npos);
    CHECK(said(0).starts_with("NVIDIA (arXiv:2509.25149) reports that the Hadamard transform "));
    CHECK(contains(said(0), "net on data: the opposite appears, -0.01 ("));
    CHECK(contains(said(1), "net on data: it appears, +0.02 ("));
    CHECK(contains(said(2), "Quartet II (arXiv:2601.22813) reports that its backward pass "));
    CHECK(contains(said(2), "net on data: cannot be told, "));
    CHECK(contains(said(2), ", of the +0.03 by which nvfp4-plain ends above FP32"));
    CHECK(contains(Tool{AMP_REPORT}((scratch / "runs").string() + " --markdown -").out, "### What is reported\n"));
}

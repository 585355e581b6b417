// How amp-report judges precisions: paired differences, their intervals and margins, one seed, known effects.
#include "recorded_files.h"
#include "report_runs.h"

#include <ampscope/sim/analysis/student.h>

#include <fmt/format.h>

#include <map>

using namespace amp;
using namespace amp::test;

namespace {

namespace fs = std::filesystem;

const Tool report{AMP_REPORT};

} // namespace

TEST_CASE("a format holds, does not, or cannot be told: the interval of paired differences against the margin") {
    const Scratch scratch;
    // FP32 differs between seeds by much more than the formats differ from FP32.
    const double seeds[] = {1, 2, 1.5, 3};
    const std::map<std::string, std::vector<double>> excess = {
        {"fp32", {0, 0, 0, 0}},          {"same", {0, 0, 0, 0}},        {"near", {0.01, 0.02, 0, 0.01}},
        {"far", {0.5, 0.51, 0.49, 0.5}}, {"open", {0.3, -0.1, 0.2, 0}}, {"edge", {0.19, 0.21, 0.19, 0.21}},
        {"breaks", {0, NAN, 0, 0}}};
    for (const auto& [precision, over] : excess)
        for (int seed = 0; seed < 4; ++seed)
            write_run(scratch / "runs" / (precision + std::to_string(seed)), configuration(precision, "net", seed), 20,
                      0, 0, "", seeds[seed] + over[static_cast<std::size_t>(seed)]);
    const std::string runs = (scratch / "runs").string();
    const Json json = report.json(runs + " --loss-margin 0.2"), group = json["groups"][0];
    CHECK(group["margin"] == 0.2);
    const auto standing = [&](const char* precision) { return row_of(group, precision)["standing"]; };
    CHECK(standing("same") == "holds");
    CHECK(standing("near") == "holds");
    CHECK(standing("far") == "worse");
    CHECK(standing("open") == "unclear");
    CHECK(standing("edge") == "unclear");
    CHECK(standing("breaks") == "broken");
    CHECK(row_of(group, "breaks")["diverged"] == 1);
    CHECK(row_of(group, "breaks")["final_loss"]["runs"] == 3); // a diverged run is not averaged
    // Seven rows, six compared: three degrees of freedom at 0.05 / 6 have t = 6.2315 or so (R: qt(1 - 0.05 / 12, 3)).
    const Json far = row_of(group, "far")["over"];
    CHECK(far["mean"].get<double>() == doctest::Approx(0.5));
    CHECK(far["deviation"].get<double>() == doctest::Approx(0.0081650).epsilon(1e-4));
    CHECK(far["high"].get<double>() - 0.5 == doctest::Approx(6.2315 * 0.0081650 / 2).epsilon(0.01));
    // With so many seeds the interval around the same mean would lie on one side, with one fewer not.
    const Json open = row_of(group, "open")["over"];
    const auto n = open["seeds_needed"].get<std::size_t>();
    const auto half = [&](std::size_t count) {
        return student_bound(1 - 0.05 / 6, count - 1) * open["deviation"].get<double>() /
               std::sqrt(static_cast<double>(count));
    };
    CHECK(half(n) < 0.1);
    CHECK(half(n - 1) >= 0.1);
    CHECK(row_of(group, "edge")["over"]["seeds_needed"].is_null()); // its mean is the margin
    const std::string said = json["precisions"].dump();
    CHECK(contains(said, "near holds. net on data: +0.01 ("));
    CHECK(contains(said, "far does not hold. net on data: +0.5 ("));
    CHECK(contains(said, fmt::format("open cannot be told. net on data: +0.1 (-0.47 to 0.67), 4 seeds; margin 0.2: {} "
                                     "seeds would tell.",
                                     n)));
    CHECK(contains(said, "no number of seeds up to 1,000 would tell, the difference sits at the margin"));
    CHECK(contains(said, "1 of 4 seeds diverged"));
    CHECK(contains(json["verdict"][0].get<std::string>(), "these runs cannot tell of"));
    // Fewer comparisons or a larger alpha give shorter intervals.
    const Json loose = report.json(runs + " --loss-margin 0.2 --alpha 0.5")["groups"][0];
    CHECK(row_of(loose, "far")["over"]["high"] < far["high"]);
    // Where FP32 itself diverges the format is not to blame, and other seeds decide.
    for (const char* seed : {"2", "3"}) fs::remove_all(scratch / "runs" / ("near" + std::string(seed)));
    write_run(scratch / "runs/fp321", configuration("fp32", "net", 1), 20, 0, 0, "", NAN);
    const Json both = report.json(runs + " --loss-margin 0.2")["groups"][0];
    CHECK(row_of(both, "breaks")["standing"] == "holds");
    CHECK(row_of(both, "near")["over"]["count"] == 1);
    // Other seeds than FP32's are two samples.
    const Json apart = report.json(runs + "/fp320 " + runs + "/fp322 " + runs + "/far1 " + runs + "/far3")["groups"][0];
    CHECK(row_of(apart, "far")["over"]["basis"] == "means");
    CHECK(row_of(apart, "far")["over"]["mean"].get<double>() == doctest::Approx(1.755));
}

TEST_CASE("one seed: what its own steps can tell, and what it cannot") {
    const Scratch scratch;
    const auto write = [&](const std::string& precision, double excess, double noise) {
        const fs::path folder = scratch / "runs" / precision;
        fs::create_directories(folder);
        write_file(folder / "run.json", configuration(precision));
        std::string lines;
        for (int step = 0; step < 200; ++step) // falls by 0.001 a step; the noise has a period of 20 steps
            lines += Json{{"step", step},
                          {"loss", 3 - 0.001 * step + excess + noise * ((step / 10) % 2 == 0 ? 1 : -1)},
                          {"scale", 1},
                          {"found_inf", false}}
                         .dump() +
                     "\n";
        write_file(folder / "metrics.jsonl", lines);
    };
    write("fp32", 0, 0);
    write("quiet", 0.001, 0.0001);
    write("noisy", 0.001, 0.05);
    write("far", 0.5, 0.001);
    const Json json = report.json((scratch / "runs").string()), group = json["groups"][0];
    // FP32's last tenth, 20 steps, is 0.02 below the tenth before, less than 1 % of 2.8.
    CHECK(group["margin"].get<double>() == doctest::Approx(0.01 * (3 - 0.1895)));
    CHECK(contains(group["margin_basis"].get<std::string>(),
                   "1 % of FP32's final loss; in its last tenth FP32 gains less, 0.02"));
    CHECK(row_of(group, "quiet")["standing"] == "unclear"); // one seed never shows that a format holds
    CHECK(row_of(group, "noisy")["standing"] == "unclear");
    CHECK(row_of(group, "far")["standing"] == "worse");
    // Ten stretches of ten steps: means are excess +- noise, five of each.
    const Json noisy = row_of(group, "noisy")["over"];
    const double deviation = 0.05 * std::sqrt(10.0 / 9);
    CHECK(noisy["basis"] == "steps");
    CHECK(noisy["deviation"].get<double>() == doctest::Approx(deviation));
    CHECK(noisy["high"].get<double>() - noisy["mean"].get<double>() ==
          doctest::Approx(student_bound(1 - 0.05 / 3, 9) * deviation));
    CHECK(contains(json["precisions"].dump(), "one seed: differences below 0.15 cannot be told from noise"));
}

TEST_CASE("known effects are reported whether they appear or not") {
    const Scratch scratch;
    for (int seed = 0; seed < 3; ++seed)
        for (const auto& [precision, over] : std::map<std::string, double>{{"fp32", 0},
                                                                           {"amp-fp16", 0.001},
                                                                           {"amp-fp16,scaler=none", 0.4},
                                                                           {"pure-bf16", 0.01},
                                                                           {"pure-bf16-kahan", 0.02}})
            write_run(scratch / "runs" / (precision + std::to_string(seed)), configuration(precision, "net", seed), 20,
                      0, 0, "", 2 + over + 0.001 * ((seed + static_cast<int>(precision.size())) % 3));
    const Json json = report.json((scratch / "runs").string()), effects = json["groups"][0]["effects"];
    REQUIRE(effects.size() == 2); // stochastic rounding and FP8 were not trained
    CHECK(effects[0]["appears"] == true);
    CHECK(effects[0]["difference"]["mean"].get<double>() == doctest::Approx(0.399).epsilon(0.01));
    CHECK(effects[1]["appears"] == false);
    CHECK(contains(json["effects"][1].get<std::string>(), "not seen, -0.01 ("));
}

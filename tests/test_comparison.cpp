// How amp-report judges precisions: paired differences, their intervals and margins, one seed, known effects.
#include "recorded_files.h"
#include "report_runs.h"

#include <ampscope/sim/analysis/student.h>
#include <ampscope/sim/findings/comparison.h>

#include <boost/math/distributions/non_central_t.hpp>
#include <boost/math/distributions/students_t.hpp>
#include <fmt/format.h>

#include <array>
#include <map>
#include <random>

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
    // With so many seeds the interval would lie on one side of the margin in 80 % of all cases, with one fewer in less.
    const Json open = row_of(group, "open")["over"];
    const auto n = open["seeds_needed"].get<std::size_t>();
    const auto power = [&](std::size_t count) {
        const double degrees = static_cast<double>(count) - 1, root = std::sqrt(degrees + 1);
        const double bound = quantile(complement(boost::math::students_t(degrees), 0.05 / 12));
        const double shift = 0.1 / open["deviation"].get<double>() * root;
        return cdf(complement(boost::math::non_central_t(degrees, shift), bound));
    };
    CHECK(open["deviation"].get<double>() == doctest::Approx(std::sqrt(0.1 / 3))); // of 0.3, -0.1, 0.2 and 0
    CHECK(power(n) >= 0.8);
    CHECK(power(n - 1) < 0.8);
    CHECK(row_of(group, "edge")["over"]["seeds_needed"].is_null()); // its mean is the margin
    const std::string said = json["precisions"].dump();
    CHECK(contains(said, "near holds. net on data: +0.01 ("));
    CHECK(contains(said, "far does not hold. net on data: +0.5 ("));
    CHECK(contains(said, fmt::format("open cannot be told. net on data: +0.1 (-0.47 to 0.67), 4 seeds; margin 0.2: {} "
                                     "seeds would tell with 80 % probability.",
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
    // Other seeds than FP32's are two samples, of which one run tells no noise.
    const Json alone = report.json(runs + "/fp320 " + runs + "/far1");
    CHECK(row_of(alone["groups"][0], "far")["over"]["basis"] == "means");
    CHECK(contains(alone["precisions"][0].get<std::string>(),
                   "net on data: +1.5, another seed than FP32's: how much of it is noise cannot be told"));
    const Json apart = report.json(runs + "/fp320 " + runs + "/fp322 " + runs + "/far1 " + runs + "/far3")["groups"][0];
    CHECK(row_of(apart, "far")["over"]["basis"] == "means");
    CHECK(row_of(apart, "far")["over"]["mean"].get<double>() == doctest::Approx(1.755));
}

TEST_CASE("the margin is what a line through the last third of FP32's losses falls by in a tenth of the run") {
    const auto broken = [](int steps) { return steps - steps / 10 - 8; }; // the step of a loss that is none to fit
    const auto group_of = [&](int steps) {
        const Scratch scratch;
        for (int seed = 0; seed < 3; ++seed) {
            const fs::path folder = scratch / "runs" / std::to_string(seed);
            fs::create_directories(folder);
            write_file(folder / "run.json", configuration("fp32", "net", seed));
            std::string lines;
            for (int step = 0; step < steps; ++step) { // noise that two means would take for a gain or a loss
                const double noise = 0.3 * std::sin(0.7 * step * step + seed);
                Json line = {{"step", step}, {"loss", 9 - 6.0 * step / steps + seed + noise}, {"scale", 1}};
                if (step == broken(steps)) line.update({{"loss", nullptr}, {"loss_class", "nan"}});
                lines += line.dump() + "\n";
            }
            write_file(folder / "metrics.jsonl", lines);
        }
        return report.json((scratch / "runs").string())["groups"][0];
    };
    for (const int steps : {31, 100, 301}) {
        double gain = 0;
        const int n = steps - 1; // finite losses, of which the line has a third
        for (int seed = 0; seed < 3; ++seed) {
            double count = 0, x = 0, y = 0, xx = 0, xy = 0; // of the normal equations
            int k = 0;
            for (int step = 0; step < steps; ++step) {
                if (step == broken(steps)) continue;
                if (k++ < n - n / 3) continue;
                const double loss = 9 - 6.0 * step / steps + seed + 0.3 * std::sin(0.7 * step * step + seed);
                count += 1, x += k, y += loss, xx += 1.0 * k * k, xy += k * loss;
            }
            gain -= (count * xy - x * y) / (count * xx - x * x) * n / 10 / 3;
        }
        const Json group = group_of(steps);
        CAPTURE(steps);
        CHECK(group["margin"].get<double>() == doctest::Approx(gain).epsilon(1e-9));
        CHECK(contains(group["margin_basis"].get<std::string>(), "in a tenth of its steps, by the line through the"));
    }
    // 29 finite losses have no ten in their last third.
    const Json brief = group_of(30);
    CHECK(contains(brief["margin_basis"].get<std::string>(),
                   "1 % of FP32's final loss; what FP32 itself gains towards the end is not known, as it logs fewer "
                   "than 30 losses"));
    CHECK(brief["margin"].get<double>() ==
          doctest::Approx(0.01 * row_of(brief, "fp32")["final_loss"]["mean"].get<double>()));
}

TEST_CASE("why a precision is not compared") {
    const Scratch scratch;
    const auto write = [&](const std::string& name, const std::string& precision, const std::string& net, int steps,
                           double loss) {
        write_run(scratch / name, configuration(precision, net, 0), steps, 0, 0, "", loss);
        return (scratch / name).string() + " ";
    };
    const std::string fp32 = write("fp32", "fp32", "net", 20, 1), longer = write("longer", "near", "net", 30, 1),
                      other = write("other", "far", "another", 20, 1);
    const Json json = report.json(fp32 + longer + other);
    const std::string said = json["precisions"].dump();
    CHECK(contains(said, "far was not compared. another on data: there is no FP32 run of this network and data."));
    CHECK(contains(said, "near was not compared. net on data: its last step is not FP32's."));
    CHECK(contains(report.json(fp32)["verdict"][0],
                   "Format: one run alone, in fp32, does not tell whether another format would do. Train it again"));
    const std::string lone = report.json(other)["verdict"][0];
    CHECK(
        contains(lone, "Format: one run alone, in far, does not tell whether it trains as well as FP32 would. Train "));
    CHECK(contains(lone, "in FP32 (in PyTorch: without autocast and without a loss scaler) from the same seed (0), "));
    CHECK(contains(lone, "and ask about both: amp-report " + other + "OTHER."));
    // How many intervals hold at once.
    const std::string same = write("same", "same", "net", 20, 1), near = write("near", "near", "net", 20, 1);
    CHECK(contains(report(fp32 + same + "--markdown -").out, "it holds the true difference with probability 0.95. A"));
    CHECK(contains(report(fp32 + same + near + "--markdown -").out,
                   "the 2 intervals of a column hold the true differences at once with probability 0.95 (Bonf"));
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
    // FP32 falls by 0.02 in a tenth of its 200 steps, less than 1 % of 2.8.
    CHECK(group["margin"].get<double>() == doctest::Approx(0.01 * (3 - 0.1895)));
    CHECK(contains(group["margin_basis"].get<std::string>(),
                   "1 % of FP32's final loss; FP32 itself gains less in a tenth of its steps, 0.02, by the line "
                   "through the last third of its losses"));
    CHECK(row_of(group, "quiet")["standing"] == "unclear"); // one seed never shows that a format holds
    CHECK(row_of(group, "noisy")["standing"] == "unclear");
    CHECK(row_of(group, "far")["standing"] == "worse");
    // A square wave of 20 steps has autocorrelations 0.8, 0.6, 0.4, 0.2, 0, -0.2 ...: five steps tell as much as one.
    const Json noisy = row_of(group, "noisy")["over"];
    const double deviation = 0.05 * std::sqrt(100.0 / 99);
    CHECK(noisy["basis"] == "steps");
    CHECK(noisy["deviation"].get<double>() == doctest::Approx(deviation));
    const double independent = noisy["independent_steps"];
    CHECK(independent == doctest::Approx(100.0 / 5).epsilon(0.1));
    CHECK(noisy["high"].get<double>() - noisy["mean"].get<double>() ==
          doctest::Approx(student_bound(1 - 0.05 / 3, static_cast<std::size_t>(independent) - 1) * deviation *
                          std::sqrt(1 / (independent * 20 / 100) + 0.36))); // the last tenth is 20 of 100 steps
    const std::string least =
        fmt::format("differences below {:.2g}", noisy["high"].get<double>() - noisy["mean"].get<double>());
    CHECK(contains(json["precisions"].dump(), "one seed: " + least + " cannot be told from noise"));
    // The verdict itself says so, with the least difference of each format that is not known to hold.
    const std::string verdict = json["verdict"][0];
    CHECK(verdict.starts_with("Format: one seed: differences below "));
    CHECK(contains(verdict, " (noisy) and "));
    CHECK(contains(verdict, " (quiet) cannot be told from noise, and that a format holds only more seeds can show; not "
                            "far."));
}

TEST_CASE("one seed: the interval holds what all seeds would say, as seeds of the standard comparison differ") {
    constexpr int trials = 400, steps = 200;
    constexpr double truth = 0.1, noise = 0.01, between = 0.55 * noise;
    std::mt19937_64 random(5);
    std::normal_distribution<double> normal;
    int held = 0, wrong = 0;
    for (int trial = 0; trial < trials; ++trial) {
        ComparisonFindings findings;
        const double of_seed = truth + between * normal(random);
        for (const char* precision : {"fp32", "near"}) {
            RecordedRun& run = findings.runs.emplace_back();
            run.name = run.label = precision;
            run.configuration = nlohmann::ordered_json::parse(configuration(run.label, "net", 0));
            run.facts = run_facts(run.configuration);
            double step_noise = noise * normal(random); // neighbouring steps are correlated by 0.5
            for (int step = 0; step < steps; ++step) {
                run.steps.emplace_back().step = step;
                run.steps.back().loss = run.label == "fp32" ? 2 : 2 + of_seed + step_noise;
                step_noise = 0.5 * step_noise + std::sqrt(0.75) * noise * normal(random);
            }
        }
        ComparisonOptions options;
        options.limits.loss_margin = truth; // the truth sits at the margin: "does not hold" is wrong
        compare(findings, options);
        const Difference& d = findings.groups[0].rows[1].over.value();
        REQUIRE(d.basis == IntervalBasis::steps);
        held += d.interval.low <= truth && truth <= d.interval.high ? 1 : 0;
        wrong += d.standing == Standing::unclear ? 0 : 1;
    }
    fmt::print(
        "one seed each: intervals of 95 % hold what all seeds would say in {:.1f} % of {} comparisons; {} say that "
        "a format does not hold which sits at the margin\n",
        100.0 * held / trials, trials, wrong);
    CHECK(held > 0.93 * trials);
    CHECK(wrong < 0.05 * trials); // above one end of the interval: half of 5 %, and what chance adds
}

TEST_CASE("validation loss and accuracy have answers of their own, and how many seeds would tell") {
    const Scratch scratch;
    for (int seed = 0; seed < 4; ++seed)
        for (const bool fp32 : {true, false}) {
            const fs::path folder = scratch / "runs" / ((fp32 ? "fp32-" : "amp-fp16-") + std::to_string(seed));
            write_run(folder, configuration(fp32 ? "fp32" : "amp-fp16", "net", seed), 20, 0, 0, "", 2 + 0.1 * seed);
            const double loss = 1 + 0.1 * seed, accuracy = 0.9 + 0.01 * seed;
            write_file(folder / "result.json", Json{{"validation_loss", fp32 ? loss : loss + 0.5 + 0.001 * seed},
                                                    {"accuracy", fp32 ? accuracy : accuracy - 0.005 * seed}}
                                                   .dump());
        }
    const std::string arguments = (scratch / "runs").string() + " --loss-margin 0.2 --markdown -";
    const Json json = report.json((scratch / "runs").string() + " --loss-margin 0.2");
    const Json row = row_of(json["groups"][0], "amp-fp16"), accuracy = row["accuracy_lost"];
    CHECK(row["standing"] == "holds");
    CHECK(row["validation_over"]["standing"] == "worse");
    CHECK(accuracy["mean"].get<double>() == doctest::Approx(0.0075));
    CHECK(accuracy["standing"] == "unclear");
    const std::string seeds = fmt::format("{} seeds would", accuracy["seeds_needed"].get<int>());
    CHECK(contains(json["precisions"][0].get<std::string>(),
                   "margin 0.2; but validation loss does not hold; accuracy cannot be told: " + seeds +
                       " tell with 80 % probability."));
    CHECK(contains(report(arguments).out, "| cannot be told: " + seeds + " tell |"));
}

TEST_CASE("accuracies that agree by chance, since they are multiples of 1/n, are not known exactly") {
    const auto lost = [](int examples, bool paired) {
        const Scratch scratch;
        for (int seed = 0; seed < 3; ++seed)
            for (const bool fp32 : {true, false}) {
                const fs::path folder = scratch / "runs" / ((fp32 ? "fp32-" : "amp-fp16-") + std::to_string(seed));
                Json run =
                    Json::parse(configuration(fp32 ? "fp32" : "amp-fp16", "net", paired || fp32 ? seed : 9 + seed));
                if (examples > 0) run["data"]["validation"] = examples;
                write_run(folder, run.dump(), 20, 0, 0, "", 2 + 0.1 * seed + (fp32 ? 0 : 0.01));
                write_file(folder / "result.json", Json{{"accuracy", fp32 ? 0.75 : 0.7475}}.dump());
            }
        return row_of(report.json((scratch / "runs").string())["groups"][0], "amp-fp16")["accuracy_lost"];
    };
    const double t = student_bound(1 - 0.05, 2);
    for (const bool paired : {true, false}) {
        const Json few = lost(400, paired), many = lost(400000, paired), unknown = lost(0, paired);
        CHECK(few["deviation"].get<double>() == doctest::Approx(1 / 400.0 / std::sqrt(6)));
        CHECK(few["high"].get<double>() == doctest::Approx(0.0025 + t / 400 / std::sqrt(6 * 3)));
        CHECK(many["high"].get<double>() == doctest::Approx(0.0025).epsilon(0.01));
        CHECK(unknown["deviation"].get<double>() < 1e-12);
    }
    CHECK(lost(100, true)["standing"] == "unclear");
    CHECK(lost(400, true)["standing"] == "holds");
}

TEST_CASE("the intervals of a group hold all true differences at once as often as they say") {
    constexpr int trials = 1500, seeds = 4;
    constexpr std::array<double, 5> truths = {0, 0.1, -0.05, 0.3, 0.02};
    std::mt19937_64 random(1);
    std::normal_distribution<double> normal;
    ComparisonFindings findings; // its runs stay as they are but for the loss, as most time would go into making them
    for (int seed = 0; seed < seeds; ++seed)
        for (std::size_t p = 0; p <= truths.size(); ++p) {
            RecordedRun& run = findings.runs.emplace_back();
            run.label = p == 0 ? "fp32" : fmt::format("p{}", p);
            run.name = fmt::format("{}-{}", run.label, seed);
            run.configuration = nlohmann::ordered_json::parse(configuration(run.label, "net", seed));
            run.facts = run_facts(run.configuration);
            run.steps.emplace_back();
        }
    ComparisonOptions options;
    options.limits.alpha = 0.1;
    options.limits.loss_margin = 0.2;
    int held = 0, wrong = 0;
    for (int trial = 0; trial < trials; ++trial) {
        auto run = findings.runs.begin();
        for (int seed = 0; seed < seeds; ++seed) {
            const double of_seed = 2 + normal(random); // seeds differ by more than formats do
            for (std::size_t p = 0; p <= truths.size(); ++p) {
                const double noise = (p == 0 ? 0.02 : 0.05) * normal(random); // FP32's is in all differences
                (run++)->steps[0].loss = of_seed + (p == 0 ? 0 : truths[p - 1]) + noise;
            }
        }
        compare(findings, options);
        bool all = true;
        for (std::size_t p = 1; p <= truths.size(); ++p) {
            const ComparisonRow& row = findings.groups[0].rows[p];
            const MeanInterval& of = row.over.value().interval;
            all = all && of.low <= truths[p - 1] && truths[p - 1] <= of.high;
            const bool holds = truths[p - 1] < 0.2;
            wrong += row.standing == (holds ? Standing::worse : Standing::holds) ? 1 : 0;
        }
        held += all ? 1 : 0;
    }
    fmt::print(
        "five intervals of 90 % at once hold all true differences in {:.1f} % of {} comparisons of four seeds; {} "
        "of {} answers are wrong\n",
        100.0 * held / trials, trials, wrong, trials * truths.size());
    CHECK(held > 0.9 * trials - 4 * std::sqrt(0.09 * trials));
    CHECK(held < 0.96 * trials); // Bonferroni wastes little
    CHECK(wrong < 0.1 * trials);
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
    CHECK(contains(json["effects"][1].get<std::string>(), "the opposite appears, -0.01 ("));
}

TEST_CASE("what acts on gradients is looked for in those of the first step, and sums say how long they are") {
    const Scratch scratch;
    const std::string sums = "fp8-current,accumulate=hopper-wgmma-fp8";
    for (int seed = 0; seed < 3; ++seed)
        for (const auto& [precision, error] : std::map<std::string, double>{{"fp32", 0},
                                                                            {sums, 0.26},
                                                                            {sums + "-promote128", 0.25},
                                                                            {"pure-bf16", 0.1},
                                                                            {"pure-bf16-kahan", 0.1}}) {
            const fs::path folder = scratch / "runs" / (precision + std::to_string(seed));
            write_run(folder, configuration(precision, "net", seed), 20, 0, 0, "", 2 + 0.1 * seed);
            write_file(folder / "result.json",
                       Json{{"gradient_error", error + 0.001 * seed * error}, {"longest_sum", 4096}}.dump());
        }
    const Json json = report.json((scratch / "runs").string()), effects = json["groups"][0]["effects"];
    REQUIRE(effects.size() == 2);
    CHECK(effects[0]["gradient_error"].is_null()); // BF16 weights: gradients of equal weights tell nothing
    CHECK(effects[1]["appears"] == false);
    CHECK(effects[1]["longest_sum"] == 4096);
    CHECK(effects[1]["gradient_error"]["mean"].get<double>() == doctest::Approx(0.01 * 1.001));
    CHECK(contains(json["effects"][1].get<std::string>(), "net on data: not seen, and smaller than the margin, +0 ("));
    CHECK(contains(json["effects"][1].get<std::string>(),
                   "(first gradients, which are 0.25 from FP32's: it appears, +0.01 ("));
    CHECK(contains(json["effects"][1].get<std::string>(), "(sums of at most 4,096 products)"));
    CHECK(contains(json["effects"][1].get<std::string>(), ". Sums of 16,384 products show it: "));
}

// Spikes and divergence: planted ones are found in their step and tensor, and runs without any raise no alarm.
#include "recorded_files.h"
#include "report_runs.h"

#include <ampscope/sim/findings/comparison.h>

#include <fmt/format.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <random>

using namespace amp;
using namespace amp::test;

namespace {

namespace fs = std::filesystem;

const Tool report{AMP_REPORT};

using Line = nlohmann::json;

/// A line of metrics.jsonl of a training that learns: norms vary by a factor of e^0.4 either way.
Line healthy(std::int64_t step, std::mt19937_64& random) {
    std::normal_distribution<double> normal;
    const double norm = 2 * std::exp(0.4 * normal(random));
    return {{"step", step},
            {"loss", 2 + 2 * std::exp(-static_cast<double>(step) / 100) + 0.05 * normal(random)},
            {"scale", 1},
            {"found_inf", false},
            {"skipped", false},
            {"grad_norm", norm},
            {"amax", {{"weight", norm / 20}, {"activation", norm / 4000}}}};
}

/// Writes a run of 400 steps; `change` alters the line of a step.
fs::path write_training(const fs::path& folder, const std::string& precision, const std::function<void(Line&)>& change,
                        int seed = 0) {
    fs::create_directories(folder);
    write_file(folder / "run.json", configuration(precision, "net", seed));
    std::mt19937_64 random(static_cast<std::uint64_t>(seed) + 1); // of a seed, batches are the same in all precisions
    std::ofstream metrics(folder / "metrics.jsonl");
    for (int step = 0; step < 400; ++step) {
        Line line = healthy(step, random);
        if (change) change(line);
        if (line["loss"].is_number() && std::isnan(line["loss"].get<double>())) {
            line["loss"] = nullptr;
            line["loss_class"] = "nan";
        }
        metrics << line.dump() << "\n";
    }
    return folder;
}

/// At one step, the gradients are so many times as large.
auto times(std::int64_t step, double factor) {
    return [=](Line& line) {
        if (line["step"] != step) return;
        line["grad_norm"] = factor * line["grad_norm"].get<double>();
        line["amax"]["weight"] = factor * line["amax"]["weight"].get<double>();
    };
}

Line spikes_of(const Line& json, const std::string& precision) {
    return row_of(json["groups"][0], precision)["runs"][0]["spikes"];
}

RecordedRun in_memory(const std::vector<double>& norms, const std::vector<double>& losses) {
    RecordedRun run;
    for (std::size_t i = 0; i < norms.size(); ++i) {
        StepMetrics m;
        m.step = static_cast<std::int64_t>(i);
        m.loss = losses[i];
        m.gradient_norm = norms[i];
        run.steps.push_back(m);
    }
    return run;
}

} // namespace

TEST_CASE("a planted spike is found in its step, and the tensor that grew most") {
    const Scratch scratch;
    const fs::path runs = scratch / "runs";
    write_training(runs / "fp32", "fp32", nullptr);
    write_training(runs / "clean", "amp-fp16", nullptr);
    write_training(runs / "spike", "amp-bf16", times(137, 64));
    std::ofstream histograms(runs / "spike/histograms.jsonl");
    for (const int step : {0, 50, 100, 137, 200}) // the exponent of the largest element of each tensor
        for (const auto& [tensor, exponent] : {std::pair{"h.0.weight.grad", step == 137 ? -8 : -10},
                                               {"h.1.weight.grad", step == 137 ? -13 : -20},
                                               {"h.2.weight.grad", step == 137 ? -3 : -5}})
            histograms << Line{{"step", step},
                               {"tensor", tensor},
                               {"kind", "weight"},
                               {"loss_scale", 1},
                               {"format", "fp32"},
                               {"zero", 0},
                               {"nan", 0},
                               {"inf", 0},
                               {"mantissa_classes", 28},
                               {"rows", {{std::to_string(exponent), {3, 5}}}}}
                              .dump()
                       << "\n";
    histograms.close();
    const Line json = report.json(runs.string());
    CHECK(spikes_of(json, "fp32").empty());
    CHECK(spikes_of(json, "amp-fp16").empty());
    const Line spikes = spikes_of(json, "amp-bf16");
    REQUIRE(spikes.size() == 1);
    const Line& s = spikes[0];
    CHECK(s["kind"] == "gradient");
    CHECK((s["first"] == 137 && s["last"] == 137 && s["peak"] == 137 && s["steps"] == 1));
    CHECK(s["value"].get<double>() / s["level"].get<double>() <= 64);
    CHECK(s["value"].get<double>() / s["level"].get<double>() > 20);
    CHECK(s["tensor"]["name"] == "h.1.weight.grad"); // 2^7 times; the others 4 times
    CHECK(s["tensor"]["factor"] == 128);
    CHECK((s["tensor"]["step"] == 137 && s["tensor"]["since"] == 100));
    CHECK(s["tensor"]["evidence"] == "histograms.jsonl");
    REQUIRE(json["alarms"].size() == 1);
    const std::string alarm = json["alarms"][0];
    CHECK(alarm.starts_with("net on data, amp-bf16: its gradient norm was "));
    CHECK(contains(alarm, " times FP32's; h.1.weight.grad grew most, 128 times from step 100 to 137 "
                          "(histograms.jsonl)"));
    CHECK(contains(json["verdict"][3].get<std::string>(),
                   "Stability: gradients above 10 times their level: amp-bf16 (1 of 1 run)."));
    const Line stability = row_of(json["groups"][0], "amp-bf16")["stability"];
    CHECK((stability["runs_with_alarms"] == 1 && stability["largest_gradient_in"] == 137));
    CHECK(row_of(json["groups"][0], "amp-fp16")["stability"]["largest_gradient"].get<double>() <= 1);
    // The limit is an option, and every output says the same.
    CHECK(report.json(runs.string() + " --spike-gradient 100")["alarms"].empty());
    const std::string outputs =
        " --html " + (scratch / "p.html").string() + " --markdown " + (scratch / "p.md").string();
    REQUIRE(report(runs.string() + outputs).code == 0);
    for (const char* page : {"p.html", "p.md"}) {
        const std::string text = read_file(scratch / page);
        CHECK(contains(text, "h.1.weight.grad grew most, 128 times from step 100 to 137 (histograms.jsonl)"));
        CHECK(contains(text, "1 of 1 run"));
        CHECK(contains(text, "Gradients over their level: net on data"));
    }
    CHECK(contains(report(runs.string()).out, "Alarms"));
}

TEST_CASE("of a run with hundreds of spikes, what grew is found for each") {
    RecordedRun run = in_memory(std::vector<double>(30'000, 2), std::vector<double>(30'000, 1));
    run.path = "nowhere";
    RunSpikes of{.run = &run};
    for (const SpikeKind kind : {SpikeKind::not_finite, SpikeKind::gradient, SpikeKind::loss}) // they overlap
        for (std::int64_t first = 99; first < 30'000; first += 100)
            of.spikes.push_back({.kind = kind, .first = first + static_cast<int>(kind), .last = first + 5});
    for (StepMetrics& m : run.steps) m.amax_weight = m.step % 100 == 3 ? 8 : 2;
    find_growth(of, 1);
    for (const Spike& s : of.spikes) CHECK(s.growth.tensor.empty()); // they grew in steps 103, not in the first of any
    for (StepMetrics& m : run.steps) m.amax_weight = m.step % 100 == 99 ? 8 : m.step % 100 == 1 ? 64 : 2;
    find_growth(of, 1);
    for (const Spike& s : of.spikes) {
        CAPTURE(s.first);
        const bool grew = s.kind != SpikeKind::gradient; // whose first step is that after step 99
        CHECK(s.growth.tensor == (grew ? "the gradients of weights" : ""));
        CHECK(s.growth.step == (grew ? s.first : 0));
        CHECK(s.growth.factor == (s.kind == SpikeKind::not_finite ? 4 : grew ? 32 : 0));
    }
}

TEST_CASE("what tells which tensor grew, and that nothing does") {
    const Scratch scratch;
    const auto spiking = [&](const std::string& name, const std::function<void(Line&)>& change) {
        return write_training(scratch / "runs" / name, name, [=](Line& line) {
            times(137, 64)(line);
            if (change) change(line);
        });
    };
    write_training(scratch / "runs/fp32", "fp32", nullptr);
    spiking("kinds", nullptr);
    spiking("none", [](Line& line) { line.erase("amax"); });
    spiking("calm", [](Line& line) { line["amax"] = {{"weight", 0.5 + 0.001 * line["step"].get<int>()}}; });
    spiking("casts", [](Line& line) {
        const int step = line["step"];
        if (step % 10 == 0 || step == 137)
            line["scaling"] = {
                {"up.weight:e4m3", {{"amax", 0.5}, {"scale", 1}, {"nonzero", 9}}},
                {"up.out.grad:e5m2", {{"amax", step == 137 ? 3.0 : 0.25}, {"scale", 1}, {"nonzero", 9}}}};
    });
    spiking("still", [](Line& line) { // of which one tensor is recorded, that did not grow
        line.erase("amax");
        line["scaling"] = {{"up.weight:e4m3", {{"amax", 0.5}, {"scale", 1}, {"nonzero", 9}}}};
    });
    const fs::path files = spiking("files", nullptr);
    for (const int step : {100, 137, 150})
        save(files / "gradients" / fmt::format("step_{:06}.safetensors", step),
             {{"a.weight.grad", {step == 137 ? 0.5F : 0.25F, 1e-6F}}, {"b.weight.grad", {step == 137 ? 32.0F : 0.5F}}},
             {{"step", std::to_string(step)}, {"loss_scale", "1"}});
    const Line json = report.json((scratch / "runs").string());
    const auto tensor = [&](const char* precision) {
        const Line spikes = spikes_of(json, precision);
        REQUIRE(spikes.size() == 1);
        CHECK(spikes[0]["peak"] == 137);
        return spikes[0]["tensor"];
    };
    CHECK(tensor("kinds")["name"] == "the gradients of weights");
    CHECK(tensor("kinds")["since"] == 136);
    CHECK(tensor("kinds")["evidence"] == "metrics.jsonl, by kind alone");
    CHECK(tensor("none").is_null());
    CHECK(tensor("calm").is_null()); // what is recorded did not grow
    const auto alarm = [&](const std::string& precision) {
        for (const std::string line : json["alarms"])
            if (contains(line, "net on data, " + precision)) return line; // one line for all that it is true of
        return std::string();
    };
    CHECK(alarm("none").ends_with("; which tensor grew is not known, since none was recorded in these steps"));
    CHECK(alarm("calm").ends_with("; which tensor grew is not known, since none was recorded in these steps"));
    CHECK(contains(alarm("kinds"), "; the gradients of weights grew most, "));
    CHECK(alarm("kinds").ends_with(" (metrics.jsonl, by kind alone); no single tensor was recorded in these steps"));
    CHECK(alarm("still").ends_with("; none of the tensors recorded in these steps grew to twice its magnitude"));
    // Of several runs in a row it names the worst.
    write_training(scratch / "row/a", "amp-bf16", times(137, 64));
    write_training(scratch / "row/b", "amp-bf16", times(200, 256), 1);
    write_training(scratch / "row/c", "amp-bf16", nullptr, 2);
    CHECK(contains(report.json((scratch / "row").string())["alarms"][0].get<std::string>(),
                   "net on data, amp-bf16: 2 of 3 runs gave this alarm, the worst of them " +
                       (scratch / "row/b").string() + ": its gradient norm was "));
    CHECK(tensor("casts")["name"] == "up.out.grad:e5m2");
    CHECK(tensor("casts")["factor"] == 12);
    CHECK((tensor("casts")["step"] == 137 && tensor("casts")["since"] == 130));
    CHECK(tensor("files")["name"] == "b.weight.grad");
    CHECK(tensor("files")["factor"] == 64);
    CHECK(tensor("files")["evidence"] == "gradients/");
}

TEST_CASE("losses that leap, and what is not finite") {
    const Scratch scratch;
    const fs::path runs = scratch / "runs";
    const auto at = [](std::int64_t step, double loss) {
        return [=](Line& line) {
            if (line["step"] == step) line["loss"] = loss;
        };
    };
    write_training(runs / "fp32", "fp32", at(250, 9)); // a hard batch
    write_training(runs / "hard", "hard-batch", at(250, 9.2));
    write_training(runs / "leap", "leaps", at(300, 4.5));
    write_training(runs / "early", "early", at(5, 40)); // nothing to compare it with yet
    write_training(runs / "lost", "lost", [](Line& line) {
        if (line["step"] >= 200) line["loss"] = NAN;
    });
    write_file(runs / "lost/result.json",
               Line{{"departures",
                     {{"inf", {{"step", 150}, {"op", "cast"}, {"tensor", "was.skipped"}, {"error", nullptr}}},
                      {"NaN", {{"step", 199}, {"op", "update"}, {"tensor", "h.3.weight"}, {"error", nullptr}}}}}}
                   .dump());
    const auto overflow = [](bool skipped) {
        return [=](Line& line) {
            if (line["step"] != 100 && line["step"] != 130) return;
            line["found_inf"] = true;
            line["skipped"] = skipped;
            line["grad_norm"] = nullptr;
        };
    };
    write_training(runs / "scaled", "scaled", overflow(true));
    write_training(runs / "unscaled", "unscaled", overflow(false));
    const Line json = report.json(runs.string());
    REQUIRE(spikes_of(json, "fp32").size() == 1); // its own median is all it has
    CHECK(spikes_of(json, "fp32")[0]["peak"] == 250);
    CHECK(spikes_of(json, "hard-batch").empty());
    CHECK(spikes_of(json, "early").empty());
    REQUIRE(spikes_of(json, "leaps").size() == 1);
    const Line leap = spikes_of(json, "leaps")[0];
    CHECK((leap["kind"] == "loss" && leap["peak"] == 300 && leap["value"] == 4.5));
    CHECK(leap["level"].get<double>() == doctest::Approx(2.1).epsilon(0.05));
    CHECK(spikes_of(report.json(runs.string() + " --spike-loss 100"), "leaps").empty());
    const Line lost = spikes_of(json, "lost");
    REQUIRE(lost.size() == 1);
    CHECK((lost[0]["kind"] == "not finite" && lost[0]["first"] == 200 && lost[0]["last"] == 399));
    CHECK(lost[0]["tensor"]["name"] == "h.3.weight (update)");
    CHECK(lost[0]["tensor"]["evidence"] == "result.json, departures");
    CHECK(contains(json["alarms"].dump(),
                   "lost: its loss or a gradient was NaN or infinite from step 200 on; the first tensor that was not "
                   "finite is h.3.weight (update), in step 199 (result.json, departures)"));
    CHECK(spikes_of(json, "scaled").empty());         // the loss scaler did what it is for
    REQUIRE(spikes_of(json, "unscaled").size() == 1); // less than 50 steps apart: one
    CHECK((spikes_of(json, "unscaled")[0]["steps"] == 2 && spikes_of(json, "unscaled")[0]["last"] == 130));
    CHECK(report.json(runs.string() + " --spike-window 20")["alarms"].size() > 0);
    CHECK(spikes_of(report.json(runs.string() + " --spike-window 20"), "unscaled").size() == 2);
}

TEST_CASE("without FP32 a run is compared with its own median, and a log without norms by its largest gradients") {
    const Scratch scratch;
    write_training(scratch / "alone", "amp-bf16", times(137, 64));
    const Line alone = report.json((scratch / "alone").string());
    REQUIRE(alone["alarms"].size() == 1);
    CHECK(contains(alone["alarms"][0].get<std::string>(), " in step 137, "));
    CHECK(contains(alone["alarms"][0].get<std::string>(), " times the median of the 50 steps before; "));
    CHECK(alone["groups"][0]["rows"][0]["runs"][0]["gradients"]["level"] == "own median");
    for (const char* name : {"runs/fp32", "runs/amp-bf16"})
        write_training(scratch / name, fs::path(name).filename(), [&](Line& line) {
            if (fs::path(name).filename() == "amp-bf16") times(137, 64)(line);
            line["grad_norm"] = nullptr;
        });
    const Line json = report.json((scratch / "runs").string());
    REQUIRE(spikes_of(json, "amp-bf16").size() == 1);
    CHECK(row_of(json["groups"][0], "amp-bf16")["runs"][0]["gradients"]["of"] == "largest");
    CHECK(contains(json["alarms"][0].get<std::string>(), "amp-bf16: its largest gradient was "));
    // A run whose gradients stay far above FP32's is one alarm, to the end; FP32's own seed decides.
    write_training(scratch / "seeds/fp32", "fp32", nullptr, 3);
    write_training(
        scratch / "seeds/grows", "grows",
        [](Line& line) {
            if (line["step"] > 100)
                line["grad_norm"] = line["grad_norm"].get<double>() * std::exp2(line["step"].get<int>() / 50);
        },
        3);
    write_training(scratch / "seeds/other", "grows", nullptr, 4);
    const Line row = row_of(report.json((scratch / "seeds").string())["groups"][0], "grows");
    CHECK(row["stability"]["runs_with_alarms"] == 1);
    REQUIRE(row["runs"][0]["spikes"].size() == 1);
    const Line s = row["runs"][0]["spikes"][0]; // 16 times from step 200 on, but small batches stay below the median
    CHECK((s["first"] >= 200 && s["first"] < 205 && s["last"] == 399));
    CHECK(row["runs"][1]["gradients"]["level"] == "own median");
}

TEST_CASE("false alarms are as rare as the limits promise") {
    std::mt19937_64 random(7);
    std::normal_distribution<double> normal;
    std::gamma_distribution<double> gamma(9, 0.2 / 9); // a small loss, as skewed as batches of a small network make it
    constexpr std::size_t n = 400'000;
    std::vector<double> norms(n), losses(n), other_norms(n), other_losses(n);
    for (std::size_t i = 0; i < n; ++i) {
        norms[i] = std::exp(0.4 * normal(random));
        losses[i] = gamma(random);
        other_norms[i] = norms[i] * std::exp(0.4 * normal(random));
        other_losses[i] = losses[i] + 0.02 * normal(random);
    }
    const RecordedRun run = in_memory(norms, losses), other = in_memory(other_norms, other_losses);
    const SpikeLimits limits;
    const std::size_t alone = find_spikes(run, nullptr, limits).spikes.size(),
                      beside = find_spikes(other, &run, limits).spikes.size();
    fmt::print("false alarms in {} steps: {} against the run's own median, {} against FP32\n", n, alone, beside);
    CHECK(alone <= 2);
    CHECK(beside <= 2);
    SpikeLimits strict{.gradient = 2, .loss = 3, .window = 50};
    CHECK(find_spikes(run, nullptr, strict).spikes.size() > 100); // so that a silent search is not taken for calm
}

// amp-report as users run it: real runs of two seeds, gradients without runs, and bad inputs.
#include "recorded_files.h"
#include "report_runs.h"
#include "tool.h"

#include <ampscope/sim/base/text.h>
#include <ampscope/sim/findings/comparison.h>
#include <ampscope/sim/findings/loss_scale.h>
#include <ampscope/sim/train/configuration.h>
#include <ampscope/tools/amp-report/standard.h>
#include <ampscope/tools/amp-train/options.h>

#include <fmt/format.h>

#include <cmath>
#include <fstream>
#include <map>
#include <numbers>
#include <random>
#include <tuple>

using namespace amp;
using namespace amp::test;

namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

const Tool report{AMP_REPORT};

Json json_file(const fs::path& path) { return Json::parse(read_file(path)); }

void train(const std::string& arguments) {
    const Outcome o = run_command(AMP_TRAIN " --model cnn --batch 16 --steps 40 " + arguments);
    CAPTURE(o.err);
    REQUIRE(o.code == 0);
}

/// The mean of the last ten losses in metrics.jsonl.
double final_loss(const fs::path& run) {
    std::vector<double> losses;
    for (const std::string& line : lines_of(read_file(run / "metrics.jsonl")))
        losses.push_back(Json::parse(line)["loss"].get<double>());
    double sum = 0;
    for (std::size_t i = losses.size() - 10; i < losses.size(); ++i) sum += losses[i];
    return sum / 10;
}

/// Checks that a report's counts for each tensor are amp-histogram's for the recorded files; returns the latter.
Json check_gradients(const Json& gradients, const fs::path& run) {
    const Json counted = Tool{AMP_HISTOGRAM}.json(run.string() + " --format fp16,bf16,e4m3,e5m2");
    std::map<std::string, std::map<std::string, std::uint64_t>> zeroed;
    for (const Json& tensor : counted["tensors"])
        for (const auto& [format, result] : tensor["formats"].items())
            zeroed[tensor["name"]][format] += result["scales"][0]["underflow"].get<std::uint64_t>();
    REQUIRE(gradients["tensors"].size() == zeroed.size());
    for (const Json& tensor : gradients["tensors"])
        for (const auto& [format, n] : tensor["underflow"].items()) CHECK(n == zeroed[tensor["tensor"]][format]);
    return counted;
}

} // namespace

TEST_CASE("runs of two seeds: what the rows say is what the runs recorded") {
    const Scratch scratch;
    const fs::path runs = scratch / "runs";
    for (const char* seed : {"0", "1"})
        train("--precision fp32,amp-fp16,pure-fp16,pure-bf16,fp8-delayed --record-every 20 --record-state --seed " +
              std::string(seed) + " --record " + (runs / seed).string());
    const Json json = report.json(runs.string() + " --markdown " + (scratch / "report.md").string());
    // How much of the range casts use is a power of two, also in words.
    CHECK(contains(read_file(scratch / "report.md"), "Use of the range: fp8-delayed. e4m3: largest from 2^"));
    REQUIRE(json["groups"].size() == 1);
    const Json& group = json["groups"][0];
    CHECK(group["name"] == "cnn on digits");
    REQUIRE(group["rows"].size() == 5);
    CHECK(group["rows"][0]["precision"] == "fp32");

    const double fp32[] = {final_loss(runs / "0/fp32"), final_loss(runs / "1/fp32")},
                 fp16[] = {final_loss(runs / "0/amp-fp16"), final_loss(runs / "1/amp-fp16")};
    const double deviation = std::abs(fp32[0] - fp32[1]) / std::sqrt(2.0), mean = (fp32[0] + fp32[1]) / 2;
    CHECK(row_of(group, "fp32")["final_loss"]["mean"].get<double>() == doctest::Approx(mean).epsilon(1e-12));
    CHECK(row_of(group, "fp32")["final_loss"]["deviation"].get<double>() == doctest::Approx(deviation).epsilon(1e-9));
    // Two pairs have one degree of freedom: t is a tangent. Three formats are compared, as pure-fp16 has no final loss.
    const double d[] = {fp16[0] - fp32[0], fp16[1] - fp32[1]};
    const double half = std::tan(std::numbers::pi / 2 * (1 - 0.05 / 3)) * std::abs(d[0] - d[1]) / 2;
    const Json over = row_of(group, "amp-fp16")["over"];
    CHECK(over["mean"].get<double>() == doctest::Approx((d[0] + d[1]) / 2).epsilon(1e-9));
    CHECK(over["low"].get<double>() == doctest::Approx((d[0] + d[1]) / 2 - half).epsilon(1e-9));
    CHECK(over["high"].get<double>() == doctest::Approx((d[0] + d[1]) / 2 + half).epsilon(1e-9));
    CHECK(over["basis"] == "seeds");
    CHECK(row_of(group, "amp-fp16")["standing"] == over["standing"]);
    CHECK(row_of(group, "pure-fp16")["diverged"] == 2);
    CHECK(row_of(group, "fp32")["standing"] == "reference");
    CHECK(row_of(group, "pure-fp16")["standing"] == "broken");
    CHECK(row_of(group, "pure-fp16")["final_loss"].is_null());
    CHECK(row_of(group, "pure-fp16")["runs"][0]["not_finite_from"] == 1);
    CHECK(row_of(group, "pure-fp16")["skipped_a_run"] == 0); // it has no scaler: steps that overflow are taken
    CHECK(row_of(group, "fp8-delayed")["runs"][0]["scaled_tensors"].size() > 4);
    CHECK(row_of(group, "fp8-delayed")["distance_from_reference"].get<double>() > 0.01);

    std::uint64_t lost = 0, updated = 0;
    double accuracy = 0;
    for (const char* seed : {"0", "1"}) {
        const Json result = json_file(runs / seed / "pure-bf16/result.json");
        lost += result["updates"]["lost"].get<std::uint64_t>();
        updated += result["updates"]["lost"].get<std::uint64_t>() + result["updates"]["changed"].get<std::uint64_t>();
        accuracy += result["accuracy"].get<double>() / 2;
    }
    CHECK(lost > 0);
    CHECK(row_of(group, "pure-bf16")["lost_updates"] == Json{{"part", lost}, {"whole", updated}});
    CHECK(row_of(group, "pure-fp16")["lost_updates"] == Json{{"part", 0}, {"whole", 0}}); // NaN in its first step
    CHECK(row_of(group, "pure-bf16")["accuracy"]["mean"].get<double>() == doctest::Approx(accuracy).epsilon(1e-12));
    CHECK(row_of(group, "amp-fp16")["bytes_per_parameter"].get<double>() > 16);
    CHECK(contains(json["verdict"][0].get<std::string>(), "; not pure-fp16"));
    CHECK(contains(json["precisions"].dump(), "2 of 2 seeds diverged (NaN or infinite from step 1 on), FP32 did not"));
    CHECK(contains(json["verdict"][2].get<std::string>(), "in fp16 eps is stored as 0"));
    CHECK(group["adam"]["basis"] == "recorded");

    // The gradients must be counted as by amp-histogram, which reads the recorded files in another way.
    CHECK(group["gradients"]["run"] == (runs / "0/fp32").string());
    const Json counted = check_gradients(group["gradients"], runs / "0/fp32");

    // By step: recorded steps 0 and 20 of 40 fill two of as many columns.
    std::map<std::string, std::map<std::int64_t, std::uint64_t>> by_step;
    for (const Json& tensor : counted["tensors"])
        by_step[tensor["name"]][tensor["step"]] =
            tensor["formats"]["e5m2"]["scales"][0]["underflow"].get<std::uint64_t>();
    const Json& columns = group["gradients"]["columns"];
    REQUIRE(columns.size() == 40);
    CHECK(columns[0] == 0);
    CHECK(columns[20] == 20);
    CHECK(columns[1].is_null());
    for (const Json& tensor : group["gradients"]["tensors"])
        for (const int step : {0, 20})
            CHECK(tensor["underflow_by_column"]["e5m2"][static_cast<std::size_t>(step)][0] ==
                  by_step[tensor["tensor"]][step]);

    // Casts under a scale: the sums of the log's entries for all steps.
    const Json fp8 = row_of(group, "fp8-delayed")["runs"][0];
    std::map<std::string, std::uint64_t> nonzero, underflow, saturated;
    std::size_t at = 0;
    for (const std::string& line : lines_of(read_file(runs / "0/fp8-delayed/metrics.jsonl"))) {
        double most = -1e300;
        const Json step = Json::parse(line);
        for (const auto& [name, cast] : step["scaling"].items()) {
            nonzero[name] += cast["nonzero"].get<std::uint64_t>();
            underflow[name] += cast["underflow"].get<std::uint64_t>();
            saturated[name] += cast["saturated"].get<std::uint64_t>();
            if (!contains(name, ":e5m2")) continue;
            most = std::max(most, std::log2(cast["amax"].get<double>() * cast["scale"].get<double>() / 57344));
        }
        const Json& column = fp8["scaled_casts"]["e5m2"][at++];
        CHECK(std::abs(column["log2_most_use"].get<double>() - most) < 1e-12);
    }
    CHECK(at == 40);
    std::uint64_t of_e5m2 = 0, of_columns = 0;
    for (const Json& tensor : fp8["scaled_tensors"]) {
        CHECK(tensor["nonzero"] == nonzero[tensor["tensor"]]);
        CHECK(tensor["underflow"] == underflow[tensor["tensor"]]);
        CHECK(tensor["saturated"] == saturated[tensor["tensor"]]);
        of_e5m2 +=
            contains(tensor["tensor"].get<std::string>(), ":e5m2") ? tensor["saturated"].get<std::uint64_t>() : 0;
    }

    for (const Json& column : fp8["scaled_casts"]["e5m2"]) of_columns += column["saturated"].get<std::uint64_t>();
    CHECK(of_columns == of_e5m2);
    CHECK(of_columns > 0);

    // A row with fewer seeds is compared with FP32's runs of these seeds; FP16 gradients are chosen only if there are
    // no others.
    const std::string seed1 = (runs / "1").string(), seed0 = (runs / "0").string();
    const Json uneven = report.json(seed0 + "/fp32 " + seed1 + "/fp32 " + seed1 + "/amp-fp16")["groups"][0];
    CHECK(row_of(uneven, "amp-fp16")["over"]["mean"].get<double>() == doctest::Approx(fp16[1] - fp32[1]).epsilon(1e-9));
    const Json low = report.json(seed0 + "/amp-fp16 " + seed0 + "/fp8-delayed")["groups"][0]["gradients"];
    CHECK(low["run"] == seed0 + "/fp8-delayed");
    CHECK(low["flushed"] == false);
    const Json flushed = report.json(seed0 + "/amp-fp16")["groups"][0]["gradients"]; // recorded at a scale of 2^16
    CHECK(flushed["flushed"] == true);
    check_gradients(flushed, runs / "0/amp-fp16");

    // The same bytes again, with any number of threads; the hash of each file is what sha256sum prints.
    const std::string page = (scratch / "page.html").string();
    REQUIRE(report(runs.string() + " --html - --threads 1 >" + page).code == 0);
    CHECK(report(runs.string() + " --html - --threads 3").out.size() > 10'000);
    const Json& file = json["files"][0];
    CHECK(run_command("sha256sum '" + file["file"].get<std::string>() + "'").out.substr(0, 64) == file["sha256"]);
    const std::string of_run =
        run_command("cd '" + (runs / "0/fp32").string() +
                    "' && sha256sum run.json metrics.jsonl histograms.jsonl result.json | sha256sum")
            .out.substr(0, 64);
    CHECK(contains(report(runs.string() + " --markdown -").out,
                   "run.json metrics.jsonl histograms.jsonl result.json | " + of_run + " |"));
    CHECK(json_file(runs / "0/fp8-delayed/result.json")["longest_sum"] ==
          16 * 8 * 8); // the gradient of c1's weights: images, places
}

TEST_CASE("steps fall into columns that begin where they say") {
    std::mt19937_64 random(1);
    for (int i = 0; i < 20'000; ++i) {
        const auto first = static_cast<std::int64_t>(random() >> (12 + random() % 52));
        const auto span = static_cast<std::int64_t>(random() >> (12 + random() % 52));
        const StepColumns columns{first, first + span};
        REQUIRE(columns.count() == static_cast<std::size_t>(std::min<std::int64_t>(64, span + 1)));
        REQUIRE(columns.begin(0) == first);
        REQUIRE(columns.of(first + span) == columns.count() - 1);
        REQUIRE(columns.of(first - 1) == 0);
        REQUIRE(columns.of(first + span + 1) == columns.count() - 1);
        const std::size_t c = random() % columns.count();
        if (span > std::int64_t{1} << 44) continue; // where doubles cannot tell steps apart
        REQUIRE(columns.of(columns.begin(c)) == c);
        if (c > 0) REQUIRE(columns.of(columns.begin(c) - 1) == c - 1);
    }
}

TEST_CASE("a report is one page of the same bytes, with a text for every figure") {
    const Scratch scratch;
    for (int r = 0; r < 10; ++r)
        write_run(scratch / "runs" / std::to_string(r), configuration("p" + std::to_string(r)), 60, 100, -10);
    const std::string arguments = (scratch / "runs").string() + " --html " + (scratch / "page.html").string() +
                                  " --markdown " + (scratch / "page.md").string();
    REQUIRE(report(arguments).code == 0);
    const std::string page = read_file(scratch / "page.html"), text = read_file(scratch / "page.md");
    CHECK(page.size() < 1'000'000); // ten runs of 100 tensors
    REQUIRE(report(arguments + " --threads 3").code == 0);
    CHECK(read_file(scratch / "page.md").substr(0, 2000) == text.substr(0, 2000));
    for (const char* part : {"src=", "href=\"http", "@import", "url(http"}) CHECK(!contains(page, part));
    std::size_t figures = 0, descriptions = 0;
    for (std::size_t at = 0; (at = page.find("<svg xmlns", at)) != std::string::npos; ++at) ++figures;
    for (std::size_t at = 0; (at = page.find("<desc id=", at)) != std::string::npos; ++at) ++descriptions;
    CHECK(figures >= 5);
    CHECK(figures == descriptions);
    // 100 layers that differ only in their number are one row. Tensor t has 2^(-10 - t): from 16 on all become zero.
    CHECK(contains(page, "<title>layer.*, weight grad: sum of 100 layers, "));
    CHECK(contains(page, "FP16 zeroes most in layer.16</title>"));
    CHECK(!contains(page, "layer.16, weight grad"));
    const Json tensor = report.json((scratch / "runs").string())["groups"][0]["gradients"]["tensors"][15];
    CHECK(tensor["nonzero"] == 480);
    CHECK(tensor["underflow"]["fp16"] == 180); // 2^-25 itself, a tie, goes to zero; what is above it does not
    CHECK(contains(text, "Format: none of these runs is in FP32"));
    const Outcome shown = report((scratch / "runs").string()); // without an output: for a terminal
    CHECK(shown.out.starts_with("Precision comparison\n"));
    for (const std::string& line : lines_of(shown.out)) CHECK(width(line) <= 80);
}

TEST_CASE("gradients without a run") {
    const Json json = report.json(AMP_SAMPLE "/deep_tanh");
    CHECK(json["groups"][0]["rows"][0]["final_loss"].is_null());
    CHECK(contains(json["verdict"][0].get<std::string>(), "no run is among these"));
    CHECK(contains(json["verdict"][0].get<std::string>(),
                   "bf16 unscaled, fp16 at loss scale 2^17, e5m2 and e4m3 at no single loss scale."));
    CHECK(contains(json["verdict"][1].get<std::string>(), "start FP16 at 2^17: nothing recorded overflows up to 2^19"));
    CHECK(json["groups"][0]["adam"]["basis"] == "held");
    CHECK(json["groups"][0]["gradients"]["tensors"].size() == 49);
}

TEST_CASE("what went wrong is said, and everything else reported") {
    const Scratch scratch;
    const fs::path runs = scratch / "runs";
    write_run(runs / "good", configuration("fp32"), 30, 3, -10);
    write_run(runs / "other", configuration("fp32", "another"), 30, 3, -10);
    write_run(runs / "empty", configuration("bf16"), 0, 0, 0);
    write_run(runs / "short", configuration("amp-fp16"), 20, 3, -10);
    std::ofstream(runs / "short/metrics.jsonl", std::ios::app) << "{\"step\":20,\"lo"; // still being written
    write_run(runs / "newer", Json{{"schema_version", 9}, {"precision", 3}}.dump(), 12, 1, -10);
    write_run(runs / "markup", configuration("<script>alert(1)</script>"), 30, 2, -10, "<script>alert(2)</script>|`");
    std::ofstream(runs / "markup/metrics.jsonl") << R"({"step":0,"loss":1,"amax":1}
{"step":5,"loss":null,"loss_class":"nan","amax":1}
)";
    std::ofstream(runs / "markup/histograms.jsonl", std::ios::app) << "nonsense\n";
    std::ofstream(runs / "markup/result.json") << "[3";
    std::ofstream(runs / "good/result.json") << R"({"warnings":["train.py:7: clipping <b>before</b> unscale_", 3]})";
    const std::string outputs =
        " --html " + (scratch / "p.html").string() + " --markdown " + (scratch / "p.md").string();
    const Outcome o = report(runs.string() + " /nonexistent --json -" + outputs);
    CHECK(o.code == 1);
    const Json json = Json::parse(o.out);
    CHECK(json["errors"].size() == 3);
    CHECK(json["groups"].size() == 3); // net, another, and the run without a configuration
    for (const char* part : {"/nonexistent: does not exist", "empty/metrics.jsonl: holds no step",
                             "metrics.jsonl: line 21 is not", "schema version 9 is newer", "4 of 6 steps are missing",
                             "histograms.jsonl: line 61 cannot be read", "result.json: is no JSON object"}) {
        CAPTURE(part);
        CHECK(contains(o.err, part));
        CHECK(contains(read_file(scratch / "p.md"), std::string_view(part).substr(0, 12)));
    }
    CHECK(contains(read_file(scratch / "p.md"), "## What is wrong with the training loop"));
    CHECK(contains(read_file(scratch / "p.html"), "good: train.py:7: clipping &lt;b&gt;before&lt;/b&gt; unscale_"));
    const Json& net = json["groups"][1]["name"] == "net on data" ? json["groups"][1] : json["groups"][0];
    CHECK(contains(net["notes"].dump(), "amp-fp16 ends at step 19, FP32 at 29: their final losses are not compared"));
    CHECK(row_of(net, "amp-fp16")["standing"] == "unknown");
    CHECK(row_of(net, "<script>alert(1)</script>")["standing"] == "broken");
    CHECK(!contains(read_file(scratch / "p.html"), "<script>alert"));
    CHECK(contains(read_file(scratch / "p.html"), "&lt;script&gt;alert(1)"));
    CHECK(!contains(read_file(scratch / "p.md"), "<script>alert"));

    // FP32 itself may fail, and gradients may need more than any usable loss scale.
    write_run(scratch / "lost", configuration("fp32"), 30, 2, -180);
    std::ofstream(scratch / "lost/metrics.jsonl") << R"({"step":0,"loss":null,"loss_class":"nan"})"
                                                  << "\n";
    const Json lost = report.json((scratch / "lost").string());
    CHECK(contains(lost["verdict"][0].get<std::string>(), "FP32's own loss is not finite"));
    CHECK(contains(lost["verdict"][1].get<std::string>(), "FP16 needs one beyond 2^126"));

    report.check_error("/nonexistent", 1, {"/nonexistent", "does not exist"});
    for (const char* text : {"{}", "[1]", "", R"({"tool": "amp-histogram"})"})
        report.check_error(write_file(scratch / "layers.json", text).string(), 1,
                           {"layers.json", "neither what ampscope.torch.compare() saved"});
    report.check_error((runs / "empty").string(), 1, {"metrics.jsonl: holds no step"});
    report.check_error((runs / "good").string() + " --json - --html -", 2, {"only one of --html"});
    report.check_error((runs / "good").string() + " --limit 2", 2, {"--limit"});
    report.check_error((runs / "good").string() + " --keep x", 2, {"--keep"});
    fs::create_directories(runs / "kept/gpt-7/mxfp8"); // a folder of the last training
    write_file(runs / "kept/gpt-7/mxfp8/run.json", "{}");
    report.check_error("--keep " + (runs / "kept").string(), 1, {"gpt-7/mxfp8/run.json", "holds a run already"});
    CHECK(!fs::exists(runs / "kept/cnn-0"));
    CHECK(report((runs / "good").string() + " --html /nonexistent/x.html").code == 1);
}

TEST_CASE("the standard comparison is what its commands say") {
    for (const report_tool::StandardTraining& training : report_tool::standard_comparison()) {
        CAPTURE(training.command);
        std::vector<std::string> words;
        std::istringstream in(training.command);
        for (std::string word; in >> word;) words.push_back(word);
        std::vector<char*> argv;
        for (std::string& word : words) argv.push_back(word.data());
        train_tool::TrainToolOptions said;
        REQUIRE(!train_tool::parse_train_command(static_cast<int>(argv.size()), argv.data(), said));
        REQUIRE(said.runs.size() == training.runs.size());
        for (std::size_t i = 0; i < said.runs.size(); ++i) {
            const Dataset data = train_tool::dataset_of(said, said.runs[i]);
            CHECK(configuration_of(said.runs[i], data) == configuration_of(training.runs[i], training.data));
        }
        const ExperimentOptions &a = said.experiment, &b = training.experiment;
        CHECK(std::tie(a.record, a.record_every, a.record_state, a.steps) ==
              std::tie(b.record, b.record_every, b.record_state, b.steps));
    }
}

TEST_CASE("who ends the standard comparison finds nothing left of it") {
    const Scratch scratch;
    for (const char* signal : {"TERM", "INT", "HUP"}) {
        const Outcome o = run_command("TMPDIR=" + (scratch / "").string() + " timeout -s " + signal + " 1 " AMP_REPORT);
        CHECK(o.code == 124); // timeout has sent the signal
        CHECK(fs::is_empty(scratch / ""));
    }
    // A signal that comes twice, as timeout sends it to a tool and to the tool's group, is one request.
    const Outcome twice = run_command("TMPDIR=" + (scratch / "").string() +
                                      " bash -c '" AMP_REPORT " & sleep 1; kill $!; sleep 0.01; kill $!; wait $!'");
    CHECK(twice.code == 128 + 15);
    CHECK(fs::is_empty(scratch / ""));
}

TEST_CASE("of gradients that are NaN or zero nothing is advised") {
    const Scratch scratch;
    for (const auto& values : {std::vector{NAN, NAN, INFINITY}, {0.0F, 0.0F, -0.0F}}) {
        CAPTURE(values[0]);
        const fs::path file = save(scratch / "step_000000.safetensors", {{"w.grad", values}});
        const std::vector<std::string> verdict = comparison_findings({file}, {}).verdict;
        CHECK(verdict.at(0) == "Format: no run is among these, and no gradient that is finite and not zero.");
        CHECK(contains(verdict.at(1), "no finite, non-zero gradients were recorded"));
        CHECK(contains(verdict.at(2), "no gradient of step 0 is finite and not zero"));
        CHECK(adam_findings(file, standard_adam_options())
                  .advice.starts_with("Advice: none, as no gradient of step 0 is finite and not zero."));
        CHECK(contains(loss_scale_findings(file, standard_loss_scale_options()).advice, "Advice: none, as"));
    }
}

TEST_CASE("what is said of Adam's state does not contradict the advice") {
    const auto said = [](const std::string& label, const std::string& state) {
        const Scratch scratch;
        for (const std::string& precision : {std::string("fp32"), label})
            for (int seed = 0; seed < 3; ++seed) {
                const fs::path folder = scratch / "runs" / fmt::format("{}-{}", precision, seed);
                Json run = Json::parse(configuration(precision, "net", seed));
                if (precision != "fp32" && !state.empty())
                    run["precision"]["state_formats"] = {{"m", state}, {"v", state}};
                write_run(folder, run.dump(), 20, 0, 0, "", 2 + 0.1 * seed + (precision == "fp32" ? 0 : 1e-4 * seed));
                if (precision != "fp32" || seed > 0) continue;
                fs::remove(folder / "histograms.jsonl"); // which is empty, but would be read instead
                for (const int step : {10, 15})
                    save(folder / "gradients" / fmt::format("step_{:06}.safetensors", step),
                         {{"a.weight.grad", {0.5F, 1e-3F, -2.5F, 0.75F}}},
                         {{"step", std::to_string(step)}, {"loss_scale", "1"}});
            }
        const Json verdict = report.json((scratch / "runs").string())["verdict"];
        CHECK(contains(verdict[0].get<std::string>(), "Format: " + label + ", which ends within the margin of FP32"));
        CHECK(contains(verdict[2].get<std::string>(), "v in bf16 cannot decay by beta2 0.999 in "));
        return verdict[2].get<std::string>();
    };
    const std::string narrow = said("pure-bf16-stochastic", "bf16");
    CHECK(!contains(narrow, "keep m and v in FP32"));
    CHECK(contains(narrow, ". pure-bf16-stochastic, advised above, keeps m and v in bf16 and ends within the margin of "
                           "FP32 all the "
                           "same: it trades that safety for memory"));
    CHECK(said("amp-bf16", "fp32").ends_with(": keep m and v in FP32, as amp-bf16 does."));
    CHECK(said("amp-bf16", "").ends_with(": keep m and v in FP32.")); // run.json does not say
}

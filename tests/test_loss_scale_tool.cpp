// amp-loss-scale as users run it: run folders, recorded gradients, logs of other programs, and bad input.
#include "recorded_files.h"
#include "tool.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>

using namespace amp;
using namespace amp::test;

namespace {

using Json = nlohmann::json;

const Tool replay{AMP_LOSS_SCALE};

/// Writes a file with that text to the folder; its path, quoted.
std::string written(const Scratch& scratch, const std::string& name, const std::string& text) {
    write_file(scratch / name, text);
    return "'" + (scratch / name).string() + "'";
}

} // namespace

TEST_CASE("run folders: the recorded scaler comes out as recorded, others are computed") {
    const Scratch scratch;
    const std::string runs = (scratch / "runs").string();
    REQUIRE(run_command(AMP_TRAIN " --model mlp --steps 30 --loss-weight 64 --growth-interval 5 --record-every 1 "
                                  "--precision fp32,amp-fp16 --record " +
                        runs)
                .code == 0);
    const Json json = replay.json(runs + " --scaler torch,interval=5 --scaler constant,init=2^4 --sweep");
    REQUIRE(json["inputs"].size() == 2);
    const Json& run = json["inputs"][0];
    CHECK(run["recorded"] == "amp-fp16, loss scaler torch");
    CHECK(run["steps"] == 30);
    CHECK(run["steps_with_magnitudes"] == 30);
    std::vector<std::int64_t> skipped;
    for (const Json& s : run["replays"][0]["skipped_steps"]) {
        skipped.push_back(s["step"]);
        CHECK(s["known"] == "exact");
        CHECK(contains(s["tensor"].get<std::string>(), ".grad")); // the step's gradients were recorded
    }
    CHECK(!skipped.empty());
    CHECK(run["recorded_skips"] == skipped);
    CHECK(run["replays"][0]["known"]["exact"] == 30);
    CHECK(run["replays"][1]["skipped"] == 0);
    CHECK(run["sweep"].size() > 5);
    CHECK(run["replays"][1]["underflow"]["known"] == "bound"); // recorded in FP16
    CHECK(json["inputs"][1]["replays"][1]["underflow"]["known"] == "exact");
    // Recorded in FP32: the FP16 run's scaler overflows in the same steps, but for gradients that were not recorded.
    CHECK(json["inputs"][1]["replays"][0]["skipped"].get<int>() > 0);

    const Outcome table = replay(runs + "/amp-fp16 --scaler torch,interval=5 --scaler megatron --svg " +
                                 (scratch / "s.svg").string() + " --html " + (scratch / "s.html").string());
    CHECK(table.code == 0);
    CHECK(table.err.empty());
    for (const char* part : {"scaler", "skipped", "first good", "underflow", "Advice: ", "What overflows under"})
        CHECK(contains(table.out, part));
    for (const std::string& line : lines_of(table.out)) CHECK(line.size() <= 80 + 2 * 3);
    for (const char* part : {"class=\"mark\"", "<th scope=\"col\">mostly at</th>", "<strong>Advice:</strong>"})
        CHECK(contains(read_file(scratch / "s.html"), part));
    const std::string svg = read_file(scratch / "s.svg");
    CHECK(contains(svg, "<svg"));
    CHECK(contains(svg, "class=\"mark\""));
    CHECK(contains(svg, "as recorded"));
    CHECK(replay(runs + " --threads 1 --json -").out == replay(runs + " --threads 3 --json -").out);
}

TEST_CASE("gradients in files need no log") {
    const Json json = replay.json(AMP_SAMPLE "/deep_tanh --scaler torch");
    const Json& input = json["inputs"][0];
    CHECK(input["steps"] == 2);
    CHECK(input["steps_with_magnitudes"] == 2);
    CHECK(input["replays"][0]["steps"] == 51); // steps between are assumed to be like the one before
    CHECK(input["replays"][0]["known"]["unknown"] == 49);
    CHECK(contains(input["advice"].get<std::string>(), "Start at 2^"));
}

TEST_CASE("every tool divides out the loss scale that it is told, where files state none or another") {
    const Scratch scratch;
    const std::vector<float> gradient = {0x1p-14F, 3, 0, -0x1p-20F, 1000};
    const auto written_by = [&](const char* folder, const char* scale) {
        std::map<std::string, std::string> metadata;
        if (*scale != 0) metadata["loss_scale"] = scale;
        fs::create_directory(scratch / folder);
        for (const char* step : {"g_0.safetensors", "g_1.safetensors"})
            save(scratch / folder / step, {{"w.grad", gradient}}, metadata);
        return std::string(folder);
    };
    const std::string said = written_by("said", "1024"), silent = written_by("silent", ""),
                      wrong = written_by("wrong", "8");
    for (const char* tool : {AMP_HISTOGRAM, AMP_LOSS_SCALE, AMP_ADAM, AMP_REPORT}) {
        CAPTURE(tool);
        // Each folder is in turn the one of that name: all that is printed is then the same, but for hashes of files.
        const auto answer = [&](const std::string& folder, const std::string& options) {
            fs::rename(scratch / folder, scratch / "g");
            const Outcome out =
                run_command(fmt::format("cd {} && {} g {} --json -", scratch.folder().string(), tool, options));
            fs::rename(scratch / "g", scratch / folder);
            REQUIRE_MESSAGE(out.code == 0, out.err);
            Json json = Json::parse(out.out);
            for (const char* of_files : {"files", "command"}) json.erase(of_files);
            return json;
        };
        const Json right = answer(said, "");
        CHECK(answer(silent, "") != right);
        CHECK(answer(wrong, "") != right);
        CHECK(answer(silent, "--recorded-scale 2^10") == right);
        CHECK(answer(wrong, "--recorded-scale 1024") == right);
        CHECK(contains(run_command(fmt::format("{} {} --recorded-scale -3", tool, (scratch / "said").string())).err,
                       "--recorded-scale: scale '-3': expected 2^K or a positive number"));
    }
    const std::string log = written(scratch, "log.csv", "step,amax\n0,3\n");
    CHECK(contains(replay(log + " --recorded-scale 8").err, "is for gradients in files"));
    CHECK(run_command(AMP_REPORT " --recorded-scale 8").code == 2);
}

TEST_CASE("what is said of the format of gradients is known") {
    const auto recorded = [](const std::string& input) {
        std::string text = replay(input).out;
        std::ranges::replace(text, '\n', ' ');
        const std::size_t at = text.find("Recorded: ");
        return text.substr(at, text.find(';', text.find(';', at) + 1) - at);
    };
    CHECK(recorded(AMP_SAMPLE "/deep_tanh") ==
          "Recorded: gradients in files, stored in fp32; gradients replayed as if they were in fp16");
    const Scratch scratch;
    REQUIRE(run_command(AMP_TRAIN " --model mlp --width 4 --steps 3 --precision amp-bf16,amp-fp16 --record " +
                        (scratch / "runs").string())
                .code == 0);
    CHECK(contains(recorded((scratch / "runs/amp-bf16").string()), "gradients in bf16, replayed as if they were in"));
    CHECK(recorded((scratch / "runs/amp-fp16").string()).ends_with("; gradients in fp16"));
}

TEST_CASE("logs of other programs") {
    const Scratch scratch;
    std::string csv = "iter;loss;\"grad max\";ls\n", jsonl, overflows = "step,overflow\n";
    for (int i = 0; i < 40; ++i) {
        const bool inf = i == 7;
        csv += fmt::format("{};1.5;{};1024\n", i, inf ? "inf" : fmt::format("{}", 1024 * 0.5));
        jsonl += fmt::format(
            "{{\"step\":{},\"amax\":{{\"weight\":0.5,\"activation\":0.25}},\"scale\":1024,\"found_inf\":{}}}\n", i,
            inf);
        overflows += fmt::format("{},{}\n", i, inf ? "True" : "False");
    }
    const std::string of_csv = written(scratch, "log.csv", csv) + " --amax 'grad max' --scale ls --amax-scaled";
    for (const std::string& log : {of_csv, written(scratch, "log.jsonl", jsonl)}) {
        const Json replays = replay.json(log + " --scaler torch --scaler constant,init=2^9")["inputs"][0]["replays"];
        CHECK(replays[0]["skipped"] == 1); // 2^16 * 0.5 is fine, but step 7 overflows at 1024 and above
        CHECK(replays[0]["skipped_steps"][0]["step"] == 7);
        CHECK(replays[0]["known"]["bound"] == 39);
        CHECK(replays[1]["skipped"] == 0);
        CHECK(replays[1]["known"]["unknown"] == 1);
        CHECK(replays[1]["known"]["exact"] == 39);
    }
    const std::string unsaid = written(scratch, "log.csv", csv) + " --amax 'grad max' --scale ls --format e4m3";
    CHECK(contains(replay(unsaid).err, "step 0: 512 times the scale overflows, but the step did not"));
    CHECK(!contains(replay(of_csv).err, "times the scale"));
    const std::string bare = written(scratch, "overflows.csv", overflows);
    const Json reconstructed = replay.json(bare + " --scaler torch --scaler torch,init=2^15");
    CHECK(reconstructed["inputs"][0]["replays"][0]["skipped"] == 1);
    CHECK(reconstructed["inputs"][0]["replays"][0]["known"]["exact"] == 40);
    CHECK(reconstructed["inputs"][0]["replays"][1]["known"]["unknown"] == 1);
    CHECK(contains(reconstructed["inputs"][0]["warnings"].dump(), "has no loss scale"));
    CHECK(contains(replay(bare).out, "holds no magnitudes"));
    for (const char* scale : {"highest_safe_log2", "recommended_log2"}) {
        CHECK(reconstructed["inputs"][0][scale].is_null()); // the text gives none, either
        CHECK(!replay.json(of_csv)["inputs"][0][scale].is_null());
    }
}

TEST_CASE("overflows as Python's json.dumps writes them") {
    const Scratch scratch;
    std::string bare, quoted, null; // one log in the style of three programs
    for (int i = 0; i < 60; ++i) {
        const char* const word[] = {"NaN", "Infinity", "-Infinity"};
        const bool inf = i % 6 == 3;
        const std::string step = fmt::format("{{\"step\": {}, \"note\": \"NaN, x\", \"scale\": 1024.0, ", i);
        bare += step + fmt::format("\"amax\": {}}}\n", inf ? word[i % 9 / 3] : "0.5");
        quoted += step + fmt::format("\"amax\": {}}}\n", inf ? "\"inf\"" : "0.5");
        null += step + fmt::format("\"amax\": {}, \"found_inf\": {}}}\n", inf ? "null" : "0.5", inf);
    }
    const std::string scalers = " --scaler constant,init=2^10 --scaler torch,interval=5";
    const auto replays = [&](const std::string& log) {
        return replay.json(written(scratch, "log.jsonl", log) + scalers)["inputs"][0]["replays"];
    };
    CHECK(replays(bare)[0]["skipped"] == 10); // one sixth of the steps
    CHECK(replays(bare)[0]["known"]["exact"] == 60);
    CHECK(replays(bare) == replays(quoted));
    CHECK(replays(bare) == replays(null));
    const Outcome o = replay(written(scratch, "log.jsonl", bare) + scalers);
    CHECK(contains(o.out, "10 (16.7 %)"));
    CHECK(o.err.empty());
}

TEST_CASE("steps whose lines cannot be read are unknown, not like the step before") {
    const Scratch scratch;
    std::string all, lost;
    for (int i = 0; i < 40; ++i) {
        const std::string line = fmt::format("{{\"step\":{},\"amax\":0.5,\"scale\":1024,\"found_inf\":{}}}", i, i == 9);
        all += line + "\n";
        const bool broken = i < 2 || (10 <= i && i < 20) || i >= 37; // at the beginning, after an overflow, at the end
        lost += (broken ? line.substr(0, line.size() - 5) : line) + "\n";
    }
    const auto first_replay = [&](const std::string& log) {
        const Json input =
            replay.json(written(scratch, "log.jsonl", log) + " --scaler constant,init=2^10")["inputs"][0];
        return std::pair(input, input["replays"][0]);
    };
    CHECK(first_replay(all).second["known"]["exact"] == 40);
    const auto [input, r] = first_replay(lost);
    CHECK(input["steps"] == 25);
    CHECK(input["hidden_steps"] == 15);
    CHECK(r["steps"] == 40);
    CHECK(r["skipped"] == 1); // step 9, but not the ten after it
    CHECK(r["known"]["exact"] == 25);
    CHECK(r["known"]["unknown"] == 15);
    CHECK(contains(input["warnings"].dump(), "nothing is known of 15 steps"));
    CHECK(contains(replay("'" + (scratch / "log.jsonl").string() + "'").out, "25 steps and 15 unknown (0 to 39)"));
    // In a log without step numbers a broken line counts as a step.
    const auto uncounted =
        first_replay("{\"found_inf\":true,\"scale\":4}\n{\"fou\n{\"fo\n{\"found_inf\":false,\"scale\":4}\n");
    CHECK(uncounted.second["steps"] == 4);
    CHECK(uncounted.second["known"]["unknown"] == 2);
    // What a program prints before and after its steps hides no step; nor does an object that is not about a step.
    const auto chatty = first_replay("begin\n" + all + "{\"validation\":1}\nend\n");
    CHECK(chatty.second["known"]["exact"] == 40);
    CHECK(chatty.second["steps"] == 40);
}

TEST_CASE("steps whose lines say nothing of their gradients are unknown, too") {
    const Scratch scratch;
    const auto replayed = [&](const std::string& name, const std::string& log) {
        return replay.json(written(scratch, name, log) + " --scaler constant,init=2^10")["inputs"][0];
    };
    for (const char* what : {"\"grad_max\":null", "\"grad_max\":\"1,5\"", "\"grad_max\":-3", "\"grad_max\":[1]",
                             "\"x\":1", "\"found_inf\":\"maybe\"", "\"found_inf\":[1],\"grad_max\":null"}) {
        CAPTURE(what);
        std::string log;
        for (int i = 0; i < 60; ++i)
            log += fmt::format("{{\"step\":{},\"loss_scale\":1024,{}}}\n", i, i % 6 == 3 ? what : "\"grad_max\":0.5");
        const Json input = replayed("log.jsonl", log);
        CHECK(input["steps"] == 50);
        CHECK(input["hidden_steps"] == 10);
        CHECK(input["replays"][0]["known"]["unknown"] == 10);
        CHECK(contains(input["warnings"].dump(), "10 steps without a word of gradients, the first is step 3"));
    }
    CHECK(replayed("log.csv", "step,scale,amax\n0,4,1\n1,4,\n2,4,1\n")["hidden_steps"] == 1);
    // Step numbers must be whole.
    const Json quarters =
        replayed("log.jsonl", "{\"step\":0,\"amax\":1}\n{\"step\":0.25,\"amax\":1}\n{\"step\":1,\"amax\":1}\n");
    CHECK(quarters["steps"] == 2);
    CHECK(contains(quarters["warnings"].dump(), "1 line without a whole number of a step"));
    replay.check_error(written(scratch, "log.jsonl", "{\"step\":4611686018427387904,\"found_inf\":true}\n"), 1,
                       {"log.jsonl: holds no step: no line has a whole number of one"});
    replay.check_error(written(scratch, "log.jsonl", "{\"step\":0,\"amax\"\n{\"st\n"), 1, {"holds no step"});
}

TEST_CASE("memory follows what is read, within bounds" * doctest::skip(!memory_is_limited)) {
    const Scratch scratch;
    const auto limited = [](const std::string& arguments) {
        return run_command("ulimit -v 250000; timeout 60 " AMP_LOSS_SCALE " --threads 1 " + arguments);
    };
    // A GiB without a line break, in a sparse file that takes no disk space.
    const fs::path hole = write_file(scratch / "hole.jsonl", "");
    fs::resize_file(hole, std::uintmax_t{1} << 30);
    const Outcome o = limited(hole.string());
    CHECK(o.code == 1);
    CHECK(o.err == "amp-loss-scale: " + hole.string() + ": line 1 is longer than 16 MiB\n");
    // Logs of many short lines.
    std::string lines = "amax,scale\n";
    for (int i = 0; i < 5'000'001; ++i) lines += "1,1\n";
    const fs::path many = write_file(scratch / "many.csv", lines);
    const Outcome refused =
        run_command("ulimit -v 1400000; timeout 60 " AMP_LOSS_SCALE " --threads 1 " + many.string());
    CHECK(refused.code == 1);
    CHECK(refused.err == "amp-loss-scale: " + many.string() + ": line 5000002: more than 5000000 steps\n");
    // A quarter of a million steps, all different for a scaler, under 141 settings.
    const std::string far = written(scratch, "far.jsonl",
                                    "{\"step\":0,\"amax\":1,\"scale\":1}\n{\"step\":250000,\"amax\":1,\"scale\":1}\n");
    const Outcome sweep = limited(far + " --sweep --scaler torch,interval=1 --json -");
    CAPTURE(sweep.err);
    REQUIRE(sweep.code == 0);
    const Json replayed = Json::parse(sweep.out)["inputs"][0]["replays"][0];
    CHECK(replayed["skipped"].get<int>() > 100'000);
    CHECK(replayed["skipped_steps"].size() == 100'000); // the first of them
    CHECK(replayed["scales"].size() == 100'000);
}

TEST_CASE("a log may come out of a pipe") {
    const Scratch scratch;
    const std::string csv = written(scratch, "a.csv", "step,amax,scale\n0,0.5,4\n1,inf,4\n"),
                      jsonl = written(scratch, "a.jsonl", "{\"step\":0,\"amax\":1,\"scale\":4}\n");
    const auto piped = [&](const std::string& log) {
        const Outcome o = run_command("bash -c \"" AMP_LOSS_SCALE " --json - --scaler torch <(cat " + log + ")\"");
        CAPTURE(o.err);
        REQUIRE(o.code == 0);
        return Json::parse(o.out)["inputs"][0]["steps"];
    };
    CHECK(piped(csv) == 2);
    CHECK(piped(jsonl) == 1);
}

TEST_CASE("what is broken is said, and the rest is reported") {
    const Scratch scratch;
    const std::string line = "{\"step\":0,\"amax\":1e-3,\"scale\":2}\n";
    const std::string gaps =
        written(scratch, "gaps.jsonl",
                line + "nonsense\n{\"step\":4,\"amax\":1e-3}\n{\"step\":4,\"amax\":2}\n{\"step\":5,\"am");
    const Outcome o = replay(gaps + " --scaler torch");
    CHECK(o.code == 0);
    for (const char* part : {"line 5 is not complete", "1 line cannot be read, the first is line 2",
                             "1 step logged more than once, 1 of them differently, the first is step 4",
                             "nothing is known of 3 steps, which lines hide"})
        CHECK(contains(o.err, part));
    std::filesystem::create_directories(scratch / "run");
    written(scratch, "run/run.json",
            "{\"schema_version\": 7, \"precision\": 3, \"loss_scaler\": {\"name\": \"<script>\"}}");
    written(scratch, "run/metrics.jsonl", line);
    written(scratch, "run/histograms.jsonl", "{\"step\":0}\nx\n");
    const std::string run = (scratch / "run").string();
    const Outcome newer = replay(run + " --scaler torch --svg " + (scratch / "x.svg").string());
    CHECK(newer.code == 1);
    CHECK(contains(newer.out, "1 step"));
    CHECK(contains(newer.err, "schema version 7 is newer"));
    CHECK(contains(newer.err, "amp-loss-scale: " + run + "/histograms.jsonl: none of 2 lines can be read"));
    CHECK(!contains(read_file(scratch / "x.svg"), "<script"));

    // One bad input among good ones: the exit code is 1, and the others are reported.
    const Outcome mixed = replay(gaps + " /nonexistent --json -");
    CHECK(mixed.code == 1);
    CHECK(Json::parse(mixed.out)["inputs"].size() == 1);
    CHECK(Json::parse(mixed.out)["errors"].size() == 1);
    replay.check_error("/nonexistent", 1, {"/nonexistent", "does not exist"});
    replay.check_error(written(scratch, "empty.csv", ""), 1, {"holds no step"});
    replay.check_error(written(scratch, "head.csv", "step,amax\n"), 1, {"holds no step"});
    replay.check_error(written(scratch, "loss.csv", "step,loss\n0,1\n"), 1, {"neither a column of largest gradients"});
    replay.check_error(written(scratch, "other.csv", "step,amax\n0,1\n") + " --amax big", 1,
                       {"no column 'big'", "step, amax"});
    std::filesystem::create_directories(scratch / "nothing");
    replay.check_error((scratch / "nothing").string(), 1, {"no .safetensors, .npy"});
    written(scratch, "run/run.json", "[1");
    replay.check_error(run, 1, {"run.json", "is no JSON object"});
    CHECK(contains(replay(written(scratch, "steps.csv", "step,amax\n1e300,1\nnan,1\n3,1\n")).err,
                   "2 lines without a whole number"));
    // The real error must come first: a truncated file, a link to nothing, a file of a folder.
    const std::string whole = read_file(AMP_SAMPLE "/deep_tanh/step_000050.safetensors");
    const std::string cut = written(scratch, "cut.safetensors", whole.substr(0, whole.size() / 2));
    replay.check_error(cut, 1, {"cut.safetensors: the tensors end at byte"});
    fs::create_symlink("nowhere", scratch / "link");
    fs::create_symlink("nowhere", scratch / "nothing/metrics.jsonl");
    replay.check_error((scratch / "link").string(), 1, {"link: is a link to nothing"});
    replay.check_error((scratch / "nothing").string(), 1, {"nothing/metrics.jsonl: cannot be read: No such file"});
    fs::create_directory(scratch / "both");
    fs::rename(scratch / "cut.safetensors", scratch / "both/cut.safetensors");
    written(scratch, "both/step_000050.safetensors", whole);
    const Outcome both = replay((scratch / "both").string() + " --json -");
    CHECK(both.code == 1);
    CHECK(Json::parse(both.out)["inputs"][0]["steps"] == 1);
    CHECK(contains(Json::parse(both.out)["errors"].dump(), "cut.safetensors: the tensors end at byte"));
    replay.check_error("", 2, {"PATH is required"});
    replay.check_error(gaps + " --scaler torhc", 2, {"unknown loss scaler 'torhc'; known: torch, "});
    replay.check_error(gaps + " --scaler torch,int=5", 2,
                       {"unknown key of a loss scaler 'int'; known: init, growth, backoff, interval, hysteresis, min"});
    replay.check_error(gaps + " --format e8m0", 2, {"holds scales"});
    replay.check_error(gaps + " --json - --svg -", 2, {"only one of"});
    replay.check_error(written(scratch, "far.csv", "step,amax\n0,1\n99999999999,1\n"), 1,
                       {"far.csv: logs steps 0 and 99999999999"});
}

// What amp-report takes for the same run: folders named twice, copies, repeated lines; and what it cannot read: pipes,
// devices, JSON that is too deep or too large.
#include "recorded_files.h"
#include "tool.h"

#include <fmt/format.h>

using namespace amp;
using namespace amp::test;

namespace {

using Json = nlohmann::json;

const Tool report{AMP_REPORT};

std::string metrics_line(int step, double loss) {
    return fmt::format("{{\"step\":{},\"loss\":{},\"scale\":1,\"found_inf\":{},\"skipped\":{},"
                       "\"updates\":{{\"lost\":1,\"changed\":9}},"
                       "\"scaling\":{{\"w:e4m3\":{{\"amax\":1,\"scale\":1,\"nonzero\":10,\"underflow\":2,"
                       "\"saturated\":1}}}}}}\n",
                       step, loss, step == 3, step == 3);
}

std::string histogram_line(int step, const std::string& tensor, int count) {
    return fmt::format("{{\"step\":{},\"tensor\":\"{}\",\"kind\":\"weight\",\"loss_scale\":1,\"format\":\"fp32\","
                       "\"zero\":0,\"nan\":0,\"inf\":0,\"mantissa_classes\":28,\"rows\":{{\"-30\":[{}]}}}}\n",
                       step, tensor, count);
}

/// Writes a run of 30 steps with that final loss; returns the folder.
fs::path write_run(const fs::path& folder, const std::string& precision, int seed, double loss) {
    fs::create_directories(folder);
    write_file(folder / "run.json", Json{{"schema_version", 1},
                                         {"model", {{"name", "net"}}},
                                         {"data", {{"name", "data"}}},
                                         {"precision", {{"name", precision}}},
                                         {"seed", seed}}
                                        .dump());
    std::string metrics, histograms;
    for (int step = 0; step < 30; ++step) {
        metrics += metrics_line(step, loss);
        histograms += histogram_line(step, "a.weight.grad", 5);
    }
    write_file(folder / "metrics.jsonl", metrics);
    write_file(folder / "histograms.jsonl", histograms);
    return folder;
}

/// The same, with a file of gradients in place of their histograms.
fs::path write_run_with_tensors(const fs::path& folder) {
    write_run(folder, "fp32", 0, 1);
    fs::remove(folder / "histograms.jsonl");
    fs::create_directory(folder / "gradients");
    fs::copy_file(AMP_SAMPLE "/deep_tanh/step_000050.safetensors", folder / "gradients/step_000050.safetensors");
    return folder;
}

Json group_of(const std::string& arguments) {
    const Outcome o = report(arguments + " --json -");
    CAPTURE(o.err);
    REQUIRE(o.code == 0);
    return Json::parse(o.out)["groups"][0];
}

std::string standing(const Json& group, const std::string& precision) {
    for (const Json& row : group["rows"])
        if (row["precision"] == precision) return row["standing"];
    return "no row";
}

void append(const fs::path& file, const std::string& text) { write_file(file, read_file(file) + text); }

} // namespace

TEST_CASE("a run that comes twice is one run, and no second seed") {
    const Scratch scratch;
    const fs::path runs = scratch / "runs";
    const std::string fp32 = write_run(runs / "fp32", "fp32", 0, 1).string();
    const std::string other = write_run(runs / "other", "other", 0, 1.015).string();
    const Json once = group_of(fp32 + " " + other);
    CHECK(once["margin"].get<double>() == doctest::Approx(0.01));
    CHECK(standing(once, "other") == "unclear");

    fs::copy(fp32, scratch / "copy", fs::copy_options::recursive);
    fs::create_directory_symlink(fp32, scratch / "link");
    write_run(scratch / "claims", "fp32", 1, 1); // a copy that states another seed
    const std::string here = scratch.folder().string();
    for (const std::string& again : {fp32, fp32 + "/", runs.string(), here + "/copy", here + "/link", here + "/claims",
                                     here + "/runs/../runs/fp32", here}) {
        CAPTURE(again);
        const Json twice = group_of(fp32 + " " + other + " " + again);
        CHECK(twice["margin"] == once["margin"]);
        CHECK(twice["margin_basis"] == once["margin_basis"]);
        CHECK(standing(twice, "other") == "unclear");
        CHECK(twice["rows"][0]["final_loss"]["runs"] == 1);
        const Outcome page = report(fp32 + " " + other + " " + again);
        CHECK(contains(page.err, "counted once"));
        CHECK(contains(page.out, "counted once"));
        CHECK(contains(twice["rows"][0]["runs"][0]["warnings"].dump(), "counted once"));
    }
    // Two seeds make two runs; a second run of one seed with another result does not make two.
    const std::string second = write_run(scratch / "second", "fp32", 1, 1.001).string(),
                      rerun = write_run(scratch / "rerun", "fp32", 0, 1.002).string();
    CHECK(group_of(fp32 + " " + other + " " + second)["rows"][0]["seeds"] == 2);
    const Json same_seed = group_of(fp32 + " " + other + " " + rerun);
    CHECK(same_seed["rows"][0]["seeds"] == 1);
    CHECK(same_seed["margin"].get<double>() == doctest::Approx(0.01 * 1.001));
    CHECK(contains(same_seed["notes"].dump(), "have the same seed, 0, but not the same losses"));
    // Of two copies the one with gradients stays.
    fs::remove(scratch / "copy/histograms.jsonl");
    CHECK(group_of(here + "/copy " + fp32)["gradients"]["tensors"][0]["nonzero"] == 150);
    // The same for gradients without a run.
    CHECK(group_of(AMP_SAMPLE "/deep_tanh " AMP_SAMPLE "/deep_tanh/")["rows"].size() == 1);
}

TEST_CASE("lines that come twice are counted once, the last of them") {
    const Scratch scratch;
    const fs::path run = write_run(scratch / "run", "fp32", 0, 1);
    const auto row = [&] { return group_of(run.string())["rows"][0]; };
    const auto nonzero = [&] { return group_of(run.string())["gradients"]["tensors"][0]["nonzero"]; };
    const Json before = row();
    REQUIRE(nonzero() == 150);
    append(run / "histograms.jsonl", histogram_line(7, "a.weight.grad", 5));
    append(run / "metrics.jsonl", metrics_line(3, 1) + metrics_line(4, 1));
    CHECK(nonzero() == 150);
    const Json after = row();
    for (const char* key : {"final_loss", "skipped_a_run", "lost_updates"}) CHECK(after[key] == before[key]);
    for (const char* key : {"skipped", "scaled_tensors", "scaled_casts", "steps"})
        CHECK(after["runs"][0][key] == before["runs"][0][key]);
    const Outcome same = report(run.string());
    CHECK(contains(same.err, "histograms.jsonl: 1 line with the step and tensor of an earlier one, 0 of them with"));
    CHECK(contains(same.err, "metrics.jsonl: 2 steps logged more than once, 0 of them differently"));

    // Two different lines: the last one counts, unless it cannot be read.
    append(run / "histograms.jsonl",
           histogram_line(7, "a.weight.grad", 8) + "{\"step\":7,\"tensor\":\"a.weight.grad\",\n");
    append(run / "metrics.jsonl", metrics_line(29, 11));
    CHECK(nonzero() == 153);
    CHECK(row()["final_loss"]["mean"].get<double>() == doctest::Approx(2)); // the mean of ten losses
    const Outcome other = report(run.string());
    CHECK(contains(other.err, "2 lines with the step and tensor of an earlier one, 1 of them with other counts"));
    CHECK(contains(other.err, "3 steps logged more than once, 1 of them differently"));
}

TEST_CASE("lines of histograms whose counts cannot be are left out, and said") {
    for (const char* from_to : {"\"zero\":0|\"zero\":18446744073709551615", "\"zero\":0|\"zero\":1,\"count\":7",
                                "\"zero\":0|\"count\":18446744073709551615,\"zero\":0", "[5]|[5.5]", "[5]|[-5]"}) {
        CAPTURE(from_to);
        const Scratch scratch;
        const fs::path run = write_run(scratch / "run", "fp32", 0, 1);
        const std::string text = from_to, from = text.substr(0, text.find('|')), to = text.substr(text.find('|') + 1);
        std::string line = histogram_line(30, "b.weight.grad", 5);
        append(run / "histograms.jsonl", line.replace(line.find(from), from.size(), to));
        const Outcome o = report(run.string() + " --json -");
        CHECK(contains(o.err, "histograms.jsonl: line 31 cannot be read; left out"));
        CHECK(Json::parse(o.out)["groups"][0]["gradients"]["tensors"].size() == 1);
    }
    const Scratch scratch; // what adds up is taken
    const fs::path run = write_run(scratch / "run", "fp32", 0, 1);
    std::string line = histogram_line(30, "b.weight.grad", 5);
    append(run / "histograms.jsonl", line.replace(line.find("\"zero\":0"), 8, "\"zero\":1,\"count\":6"));
    CHECK(report(run.string()).err.empty());
}

TEST_CASE("a step that is too far from the others makes a log that cannot be believed") {
    const Scratch scratch;
    const fs::path run = write_run(scratch / "run", "fp32", 0, 1);
    std::string line = metrics_line(29, 77);
    append(run / "metrics.jsonl", line.replace(line.find("29"), 2, "1000000000000000"));
    const Outcome o = report(run.string() + " --json -");
    CHECK(o.code == 1);
    CHECK(lines_of(o.err).size() == 1);
    CHECK(contains(o.err, "metrics.jsonl: logs steps 0 and 1000000000000000, more than 20000000 apart"));
    const Json row = Json::parse(o.out)["groups"][0]["rows"][0];
    CHECK(!contains(row.dump(), "77"));
}

TEST_CASE("a damaged file of gradients is named, and the exit code is 1") {
    const Scratch scratch;
    const fs::path run = write_run_with_tensors(scratch / "run");
    CHECK(report(run.string()).code == 0);
    write_file(run / "gradients/step_000051.safetensors", "damaged");
    const Outcome o = report(run.string() + " --json -");
    CHECK(o.code == 1);
    CHECK(lines_of(o.err).size() == 1);
    CHECK(contains(o.err, "amp-report: " + (run / "gradients/step_000051.safetensors: ").string()));
    CHECK(Json::parse(o.out)["errors"].size() == 1);
}

TEST_CASE("a run of a later version, and one whose run.json is broken, are told of once") {
    const Scratch scratch;
    const fs::path run = write_run_with_tensors(scratch / "run");
    write_file(run / "run.json", R"({"schema_version": 99})");
    const Outcome later = report(run.string());
    CHECK(later.code == 0);
    REQUIRE(lines_of(later.err).size() == 1);
    CHECK(contains(later.err, "schema version 99 is newer"));
    write_file(run / "run.json", "[]");
    const Outcome broken = report(run.string());
    CHECK(broken.code == 1);
    CHECK(lines_of(broken.err).size() == 1);
}

TEST_CASE("what is no text, or too much of it, is refused in one line and in little memory") {
    const Scratch scratch;
    const fs::path run = write_run(scratch / "run", "fp32", 0, 1);
    const std::string limited = "ulimit -v 1000000; timeout 20 "; // one GB of addresses, threads and libraries included
    const auto refuses = [&](const char* file, const std::string& why) {
        CAPTURE(file);
        const std::string arguments = " " + run.string() + " --threads 1";
        const Outcome o = run_command(limited + AMP_REPORT + arguments + " --markdown -");
        CAPTURE(o.err);
        CHECK(o.code == 1);
        CHECK(contains(o.out, "fp32")); // the rest of the run is reported
        CHECK(contains(o.err, std::string(file) + ": " + why));
        if (std::string_view(file) == "result.json") return;
        for (const std::string tool : {AMP_LOSS_SCALE, AMP_DIFF}) {
            const Outcome p = run_command(limited + tool + (tool == AMP_DIFF ? " " + run.string() : "") + arguments);
            CAPTURE(tool);
            CAPTURE(p.err);
            const bool reads = std::string_view(file) != "histograms.jsonl" || tool != AMP_DIFF;
            if (reads) CHECK(p.code == 1);
            if (reads) CHECK(contains(p.err, std::string(file) + ": " + why));
        }
    };
    std::string deep = "{\"a\":", wide = "{\"a\":[";
    for (int i = 0; i < 100'000; ++i) deep += "{\"a\":";
    while (wide.size() < std::size_t{17} << 20) wide += "[],[],[],[],[],[],[],[],";
    for (const char* file : {"run.json", "result.json", "metrics.jsonl", "histograms.jsonl"}) {
        const std::string saved = fs::exists(run / file) ? read_file(run / file) : "{}";
        fs::remove(run / file);
        REQUIRE(::mkfifo((run / file).c_str(), 0600) == 0);
        refuses(file, "is a pipe, not a regular file");
        fs::remove(run / file);
        fs::create_symlink("/dev/zero", run / file);
        refuses(file, "is a device, not a regular file");
        fs::remove(run / file);
        fs::create_symlink("nowhere", run / file);
        refuses(file, "cannot be read: No such file or directory");
        fs::remove(run / file);
        const bool lines = std::string_view(file).ends_with("l");
        if (!lines) {
            write_file(run / file, deep);
            refuses(file, "is no JSON object: byte 500: more than 100 levels");
        }
        write_file(run / file, wide);
        refuses(file, lines ? "line 1 is longer than 16 MiB" : "is larger than 16 MiB");
        write_file(run / file, saved);
    }
    // Configurations with 200,000 keys are compared in seconds.
    const std::string saved = read_file(run / "run.json");
    std::string keys = "{";
    for (int i = 0; i < 200'000; ++i) keys += "\"" + std::to_string(i) + "\":0,";
    fs::copy(run, scratch / "other", fs::copy_options::recursive);
    write_file(run / "run.json", keys + "\"a\":1,\"b\":[1,2]}");
    write_file(scratch / "other/run.json", keys + "\"a\":2,\"b\":[1],\"c\":{}}");
    const Outcome diff =
        run_command(limited + AMP_DIFF " --json - " + run.string() + " " + (scratch / "other").string());
    CHECK(diff.code == 1); // neither has gradients
    for (const char* part : {"run.json /a: 1 and 2", "run.json /b/1: 2 and nothing", "run.json /c: nothing and {}"})
        CHECK(contains(diff.out, part));
    write_file(run / "run.json", saved);
    // Lines that are too deep are left out, as other broken lines are.
    append(run / "metrics.jsonl", deep + "\n");
    append(run / "histograms.jsonl", "{\"rows\":" + deep + "\n");
    const Outcome o = run_command(limited + AMP_REPORT " " + run.string());
    CHECK(o.code == 0);
    CHECK(contains(o.err, "metrics.jsonl: 1 line cannot be read, the first is line 31"));
    CHECK(contains(o.err, "histograms.jsonl: line 31 cannot be read"));
}

TEST_CASE("a copy of an earlier time is the same run, told by its steps and not by its bytes") {
    const Scratch scratch;
    // Writes a run with these losses; a negative one stands for NaN.
    const auto write = [&](const char* name, int seed, const std::vector<double>& losses, bool ended = false) {
        const fs::path run = write_run(scratch / name, "fp32", seed, 1);
        std::string lines;
        for (std::size_t i = 0; i < losses.size(); ++i) {
            std::string text = metrics_line(static_cast<int>(i), losses[i]);
            if (losses[i] < 0) text.replace(text.find(":-1"), 3, ":null,\"loss_class\":\"nan\"");
            lines += text;
        }
        write_file(run / "metrics.jsonl", lines);
        if (ended) write_file(run / "result.json", R"({"validation_loss":0.5})");
        return run;
    };
    const std::vector<double> losses = {6, 5, 4, 3, 2, 1};
    const auto first = [&](std::ptrdiff_t n) { return std::vector<double>(losses.begin(), losses.begin() + n); };
    const std::string run = write("run", 0, losses, true).string();
    const Json alone = group_of(run)["rows"][0];

    const auto is_left_out = [&](const fs::path& other, const std::string& what) {
        for (const std::string& both : {run + " " + other.string(), other.string() + " " + run}) {
            CAPTURE(both);
            Json group = group_of(both);
            Json& row = group["rows"][0];
            const std::string words = other.string() + what;
            CHECK(contains(row["runs"][0]["warnings"].dump(), words));
            CHECK(contains(report(both).err, "warning: " + words));
            CHECK(!contains(group["notes"].dump(), "have the same seed"));
            row["runs"][0]["warnings"] = alone["runs"][0]["warnings"];
            CHECK(row == alone);
        }
    };
    const std::string same = " is the same run as " + run + " (seed 0)";
    for (const int n : {1, 4, 5})
        is_left_out(write("early", 0, first(n)),
                    fmt::format(" (seed 0){}, cut off after step {}; counted once", same, n - 1));
    is_left_out(write("short", 0, first(4), true), " (seed 0)" + same + ", ended after step 3; counted once");
    is_left_out(write("claims", 7, first(4)), " (seed 7)" + same + ", cut off after step 3; counted once");
    // One space more, one line less.
    const fs::path spaced = write("spaced", 0, losses);
    std::string lines = read_file(spaced / "metrics.jsonl");
    write_file(spaced / "metrics.jsonl", lines.replace(lines.find(','), 1, ", "));
    is_left_out(spaced, " (seed 0)" + same + ": their steps are the same; counted once");
    lines.erase(lines.find("{\"step\":2"), lines.find("{\"step\":3") - lines.find("{\"step\":2"));
    write_file(spaced / "metrics.jsonl", lines);
    is_left_out(spaced, " (seed 0)" + same + ", with 5 of its 6 steps; counted once");
    // Of three copies the longest stays, wherever it is.
    CHECK(group_of((scratch / "early").string() + " " + run + " " + spaced.string())["rows"][0]["runs"].size() == 1);

    const auto both_stay = [&](const fs::path& a, const fs::path& b) {
        CAPTURE(b);
        const Outcome o = report(a.string() + " " + b.string() + " --json -");
        REQUIRE(o.code == 0);
        CHECK(!contains(o.err, "counted once"));
        std::size_t count = 0;
        const Json page = Json::parse(o.out);
        for (const Json& group : page["groups"])
            for (const Json& row : group["rows"]) count += row["runs"].size();
        CHECK(count == 2);
    };
    both_stay(run, write("other", 0, {6, 5, 4, 3.5}));
    both_stay(run, write("more", 0, {6, 5, 4, 3, 2, 1.5}));
    both_stay(run, write("one", 7, first(1))); // two seeds may begin with the same loss
    const fs::path of_bf16 = write("bf16", 0, first(4));
    const std::string configuration = read_file(of_bf16 / "run.json");
    write_file(of_bf16 / "run.json", std::string(configuration).replace(configuration.find("fp32"), 4, "bf16"));
    both_stay(run, of_bf16);
    both_stay(write("nan0", 0, {6, -1, -1, -1}), write("nan1", 1, {6, -1, -1}));
    // Logs without losses and without configurations.
    const auto without_losses = [](const fs::path& folder) {
        std::string rest;
        for (const std::string& line : lines_of(read_file(folder / "metrics.jsonl")))
            rest += std::string(line).replace(line.find("loss"), 4, "other") + "\n";
        write_file(folder / "metrics.jsonl", rest);
        return folder;
    };
    both_stay(without_losses(write("a", 0, losses)), without_losses(write("b", 0, first(4))));
    const fs::path bare = write("bare", 0, losses), cut = write("cut", 0, first(4));
    for (const fs::path& folder : {bare, cut}) fs::remove(folder / "run.json");
    both_stay(bare, cut);
}

TEST_CASE("a run that lost its run.json is not judged as if it were another training without saying so") {
    const Scratch scratch;
    const fs::path whole = write_run(scratch / "fp32", "fp32", 0, 1);
    const fs::path lost = write_run(scratch / "lost" / "fp32", "fp32", 1, 1.5);
    fs::remove(lost / "run.json");
    const std::string both = whole.string() + " " + lost.string();
    CHECK(contains(report(both).err,
                   "amp-report: warning: " + lost.string() +
                       ": has no run.json, which says what was trained and how: its folder's name, fp32, is taken for "
                       "its precision; it is compared only with others that have none, as if trained alike\n"));
    CHECK_FALSE(contains(report(whole.string()).err, "run.json"));
}

TEST_CASE("one step that is missing is one") {
    const Scratch scratch;
    const fs::path run = write_run(scratch / "fp32", "fp32", 0, 1);
    write_file(run / "metrics.jsonl", metrics_line(0, 1) + metrics_line(2, 1));
    CHECK(contains(report(run.string()).err,
                   "metrics.jsonl: 1 of 3 steps is missing; where nothing else is known, it is taken to be like the "
                   "step before"));
}

TEST_CASE("the page does not claim to divide out a loss scale that no file states") {
    const Scratch scratch;
    const auto page = [&](const char* name, const std::map<std::string, std::string>& metadata) {
        return report(save(scratch / name, {{"w.grad", {1, 2}}}, metadata).string() + " --markdown -").out;
    };
    CHECK(contains(page("said.safetensors", {{"loss_scale", "1024"}}), "; the loss scale is divided out."));
    CHECK(contains(page("unsaid.safetensors", {}),
                   "; their files state no loss scale, and none is divided out (--recorded-scale)."));
}

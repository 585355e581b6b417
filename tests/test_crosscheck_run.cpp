// amp-crosscheck run: device functions on the host, and the host with models of matrix instructions.
#include "sweep.h"
#include "tool.h"

#include <ampscope/sim/program/ops.h>
#include <ampscope/sim/program/precision.h>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <map>
#include <set>
#include <sstream>

using namespace amp;
using namespace amp::test;
using Json = nlohmann::json;

namespace {

Outcome vectors(const std::string& arguments) { return run_command(AMP_CROSSCHECK " vectors " + arguments); }

/// Splits a name into words: "hopper-fp16.fp16.fp16.safetensors".
std::vector<std::string> words_of(const std::string& name) {
    std::vector<std::string> words;
    std::istringstream in(name);
    for (std::string word; std::getline(in, word, '.');) words.push_back(word);
    REQUIRE(words.size() == 4);
    return words;
}

} // namespace

TEST_CASE("run: what devices run, on the host") {
    const Scratch scratch;
    const Outcome run = run_command(fmt::format("{} run --device host --quick --steps 5 --json --output {}",
                                                AMP_CROSSCHECK, (scratch / "reports").string()));
    REQUIRE_MESSAGE(run.code == 0, run.out, run.err);
    const Json json = Json::parse(run.out);
    CHECK(json["mismatches"] == 0);
    CHECK(json["cases"] > 5'000'000);
    CHECK(json["device"] == Json{{"name", "host"}, {"hardware", false}});
    std::map<std::string, int> parts;
    std::map<std::string, std::string> bits; // what each training ends in
    for (const Json& row : json["rows"]) {
        ++parts[row["part"]];
        if (row["part"] == "training") bits[row["name"]] = row["note"];
    }
    for (const std::string network : {"mlp", "cnn", "gpt"}) { // shapes in which the blocks of a scale matter
        std::set<std::string> different;
        for (const std::string recipe : {"fp8-block", "mxfp8", "nvfp4", "deepseek"}) {
            CAPTURE(network + " " + recipe);
            CHECK(different.insert(bits.at(network + " " + recipe + ", emulated")).second);
        }
    }
    CHECK(parts == std::map<std::string, int>{{"conversions", static_cast<int>(formats.size()) + 1},
                                              {"ops", static_cast<int>(std::variant_size_v<Op>)},
                                              {"training", 3 * static_cast<int>(precisions().size()) + 6}});
    CHECK(Json::parse(read_file(scratch / "reports" / "crosscheck-host.json")) == json);
    const std::string report = read_file(scratch / "reports" / "crosscheck-host.md");
    CHECK(report.find("not measured on hardware") != std::string::npos);
    CHECK(report.find("tools/check --device") != std::string::npos);
    CHECK(report.find("| softmax |") != std::string::npos);
}

TEST_CASE("run: the layouts around matrix instructions, and recordings that hold for ever") {
    for (const std::pair<int, int>& device :
         std::initializer_list<std::pair<int, int>>{{80, 4}, {89, 8}, {90, 24}, {100, 12}, {120, 12}}) {
        const int capability = device.first, instructions = device.second;
        CAPTURE(capability);
        const Scratch scratch;
        const Outcome run = run_command(
            fmt::format("{} run --device host:{} --only accumulators --quick --json --output {} --record {}",
                        AMP_CROSSCHECK, capability, (scratch / "reports").string(), (scratch / "vectors").string()));
        REQUIRE_MESSAGE(run.code == 0, run.out, run.err);
        const Json json = Json::parse(run.out);
        CHECK(json["rows"].size() == instructions);
        CHECK(json["mismatches"] == 0);
        if (capability == 100) CHECK(contains(run.out, "blackwell-mma-fp8-acc16, recorded on hardware"));
        CHECK(contains(run.out, "blackwell-fp8, stated by a source") == (capability == 120));
        int files = 0;
        for (const auto& file : fs::directory_iterator(scratch / "vectors")) {
            const std::vector<std::string> words = words_of(file.path().filename().string());
            const Outcome same =
                vectors(fmt::format("{} {} --a {} --b {} --json", words[0], file.path().string(), words[1], words[2]));
            CHECK_MESSAGE(same.code == 0, same.out, same.err);
            CHECK(Json::parse(same.out)["vectors"][0]["cases"] == 12 * 32);
            ++files;
        }
        CHECK(files == instructions);
    }
}

TEST_CASE("products of a training run on tensor cores") {
    // The committed report is what `run` makes on the host for this device: tests/readme makes it again.
    const Json json = Json::parse(read_file(AMPSCOPE_SOURCE "/reports/crosscheck-host-90.json"));
    CHECK(json["mismatches"] == 0);
    int native = 0;
    for (const Json& row : json["rows"]) {
        if (row["part"] != "training") continue;
        const std::string name = row["name"], note = row["note"];
        if (name.find("native") == std::string::npos) continue;
        ++native;
        CHECK_MESSAGE(note.find(" 0 of ") == std::string::npos, name, note);
    }
    CHECK(native == 2 * 3 * 5);
}

TEST_CASE("run --resume takes rows that agreed, and compares the others") {
    const Scratch scratch;
    const fs::path folder = scratch / "reports", file = folder / "crosscheck-host.json";
    std::string part = "conversions";
    const auto run = [&](const std::string& more) {
        return run_command(fmt::format("{} run --device host --quick --only {} --json --output {} {}", AMP_CROSSCHECK,
                                       part, folder.string(), more));
    };
    REQUIRE(run("").code == 0);
    const auto edit = [&](const auto& change) {
        Json json = Json::parse(read_file(file));
        change(json);
        write_file(file, json.dump());
    };
    const std::string resume = "--resume " + folder.string();
    const auto first_cases = [&](const Outcome& outcome) {
        REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
        return Json::parse(outcome.out)["rows"][0]["cases"].get<int>();
    };
    const int cases = first_cases(run(resume));
    edit([](Json& json) { json["rows"][0]["cases"] = 7; }); // shows which are taken
    CHECK(first_cases(run(resume)) == 7);
    CHECK(first_cases(run(resume + "," + (scratch / "none").string())) == 7);
    CHECK(first_cases(run("")) == cases);
    const std::size_t rows = Json::parse(read_file(file))["rows"].size();
    CHECK(first_cases(run(resume + "," + folder.string())) == cases);
    CHECK(Json::parse(read_file(file))["rows"].size() == rows); // each is taken once
    const std::vector<std::pair<const char*, Json>> others = {{"quick", false}, {"build", "of a device"}, {"steps", 7}};
    for (const auto& other : others) {
        edit([&](Json& json) {
            json["rows"][0]["cases"] = 7;
            json[other.first] = other.second;
        });
        CHECK(first_cases(run(resume)) == cases);
    }
    part = "ops";
    const Json ops = Json::parse(run("").out)["rows"];
    edit([](Json& json) { // one op that differs: all are compared again, since all are made at once
        json["rows"][0]["cases"] = 7;
        json["rows"][3]["mismatches"] = 5;
    });
    const Outcome again = run(resume);
    CHECK(first_cases(again) == ops[0]["cases"]);
    CHECK(Json::parse(again.out)["rows"].size() == ops.size());
    CHECK(Json::parse(again.out)["mismatches"] == 0);
    write_file(file, R"({"device": 1})");
    const Outcome wrong = run(resume);
    CHECK(wrong.code == 1);
    CHECK_MESSAGE(contains(wrong.err, "crosscheck-host.json: no report of amp-crosscheck run"), wrong.err);
}

TEST_CASE("run: what cannot be had") {
    const Scratch scratch;
    const std::string output = " --output " + (scratch / "reports").string();
    const auto fails = [&](const std::string& arguments, int code, const std::string& text) {
        const Outcome run = run_command(AMP_CROSSCHECK " run " + arguments);
        CHECK(run.code == code);
        CHECK_MESSAGE((run.out + run.err).find(text) != std::string::npos, run.out, run.err);
    };
    fails("--device 77" + output, 1, "no CUDA device");
    fails("--device host:12" + output, 2, "host:12");
    fails("--only everything" + output, 2, "everything");
    fails("--device host --output /dev/null/x", 1, "/dev/null");
}

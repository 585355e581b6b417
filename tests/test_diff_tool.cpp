// amp-diff as users run it: files of any mix, runs, gates, bad input.
#include "recorded_files.h"
#include "tool.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

using namespace amp;
using namespace amp::test;

namespace {

using Json = nlohmann::json;

const Tool diff{AMP_DIFF};

/// A raw file of FP32 numbers; compared with --dtype F32.
std::string raw(const Scratch& scratch, const std::string& name, const std::vector<float>& values) {
    write_file(scratch / name, {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
    return (scratch / name).string();
}

} // namespace

TEST_CASE("two runs: local error in the step where the state is the same, drift afterwards") {
    const Scratch scratch;
    const std::string runs = (scratch / "runs").string();
    REQUIRE(run_command(AMP_TRAIN " --model mlp --steps 25 --record-every 10 --record-state --precision "
                                  "fp32,amp-bf16,amp-fp16 --record " +
                        runs)
                .code == 0);
    const Json json = diff.json(runs + "/fp32 " + runs + "/amp-bf16");
    REQUIRE(json["steps"].size() == 3);
    CHECK(json["steps"][0]["origin"] == "local");
    CHECK(json["steps"][0]["state_distance"] == 0);
    CHECK(json["steps"][1]["origin"] == "drift");
    CHECK(json["steps"][1]["state_distance"].get<double>() > 0);
    CHECK(json["steps"][2]["state_distance"] > json["steps"][1]["state_distance"]);
    CHECK(json["first"]["step"] == 0);
    CHECK(json["first"]["tensor"] == json["tensors"][0]["tensor"]);
    CHECK(contains(json["notes"].dump(), "loss first differs in step 0"));
    CHECK(contains(json["notes"].dump(), "/precision/name"));
    std::uint64_t elements = 0, classes = 0;
    for (const Json& t : json["tensors"]) {
        elements += t["elements"].get<std::uint64_t>();
        for (const Json& n : t["classes"]) classes += n.get<std::uint64_t>();
    }
    CHECK(elements == json["total"]["elements"]);
    CHECK(classes == elements);
    // FP16 gradients contain their loss scale, which is divided out.
    const Json scaled = diff.json(runs + "/fp32 " + runs + "/amp-fp16");
    CHECK(scaled["steps"][0]["relative_norm"].get<double>() < 0.02);

    const Outcome table = diff(runs + "/fp32 " + runs + "/amp-bf16 --worst 3 --svg " + (scratch / "d.svg").string() +
                               " --html " + (scratch / "d.html").string());
    CHECK(table.code == 0);
    for (const char* part : {"First: step 0", "local error", "drift, state", "Farthest apart", "|a-b|/|a|", "DOES"})
        CHECK(contains(table.out, part) == (std::string_view(part) != "DOES"));
    for (const std::string& line : lines_of(table.out)) CHECK(line.size() <= 84);
    CHECK(contains(read_file(scratch / "d.svg"), "how far apart"));
    for (const char* part : {"how far apart", "<th scope=\"col\">max ulps</th>", "<strong>They differ:</strong>"})
        CHECK(contains(read_file(scratch / "d.html"), part));
    const Outcome same = diff(runs + "/fp32 " + runs + "/fp32 --html " + (scratch / "same.html").string());
    CHECK(same.code == 0);
    CHECK(contains(same.out, "The same: "));
    CHECK(!contains(read_file(scratch / "same.html"), "went wrong"));
    CHECK(contains(same.out, "loss never differs"));
    CHECK(diff(runs + "/fp32 " + runs + "/amp-bf16 --json - --threads 1").out ==
          diff(runs + "/fp32 " + runs + "/amp-bf16 --json - --threads 3").out);
}

TEST_CASE("folders of runs are compared file by file; a loss that is NaN twice is the same") {
    const Scratch scratch;
    const std::string runs = (scratch / "runs").string();
    REQUIRE(run_command(AMP_TRAIN
                        " --model mlp --width 4 --steps 3 --record-every 1 --precision fp32,pure-fp16 --record " +
                        runs)
                .code == 0);
    const std::string log = read_file(scratch / "runs/fp32/metrics.jsonl");
    const std::size_t loss = log.find("\"loss\":"), end = log.find(',', loss);
    write_file(scratch / "runs/fp32/metrics.jsonl", std::string(log).replace(loss, end - loss, "\"loss\":NaN"));
    const Outcome own = diff(runs + "/fp32 " + runs + "/fp32");
    CHECK(own.code == 0);
    CHECK(contains(own.out, "loss never differs"));
    const Outcome both = diff(runs + " " + runs);
    CHECK(both.code == 0);
    CHECK(contains(both.out, "The same: "));
    CHECK(diff.json(runs + " " + runs)["tensors"].size() ==
          2 * diff.json(runs + "/fp32 " + runs + "/fp32")["tensors"].size());
}

TEST_CASE("two files of one tensor are compared whatever their names, and gates judge them") {
    const Scratch scratch;
    std::vector<float> values(100, 1), others = values;
    others[7] = 1 + 0x1p-22F; // two ulps
    const std::string files = raw(scratch, "a.bin", values) + " " + raw(scratch, "b.bin", others) + " --dtype F32";
    const Json json = diff.json(files);
    CHECK(json["first"]["index"] == 7);
    CHECK(json["first"]["b_bits"] == "0x3f800002");
    CHECK(json["first"]["b"] == "0x1.000004p+0");
    CHECK(json["total"]["max_ulps"] == 2);
    CHECK(json["total"]["ulps"] == Json{{"1", 1}});
    for (const char* holds : {"max-ulps<=2", "max-ulps < 2.5", "differ<=1%", "norm<1e-6", "nan<=0", "sign<1",
                              "missing<=0", "max-relative<1e-6", "inf<=0", "zero<=0"})
        CHECK_MESSAGE(diff(files + " --gate '" + holds + "'").code == 0, holds);
    for (const char* fails : {"max-ulps<2", "differ<1%", "norm<1e-9", "max-relative<1e-8"}) {
        const Outcome o = diff(files + " --gate '" + fails + "'");
        CHECK_MESSAGE(o.code == 3, fails);
        CHECK(contains(o.out, "DOES NOT HOLD"));
        CHECK(contains(diff(files + " --json - --gate '" + fails + "'").err, "gate does not hold"));
    }
    others[9] = NAN;
    const std::string nan = raw(scratch, "a.bin", values) + " " + raw(scratch, "c.bin", others) + " --dtype F32";
    CHECK(diff(nan + " --gate 'max-ulps<1e30'").code == 3);
    CHECK(diff(nan + " --gate 'nan<=1'").code == 0);
    CHECK(contains(diff(nan).out, "1 NaN in one"));
    CHECK(diff.json(files + " --a-scale 2 --b-scale 2")["total"]["max_ulps"] == 2);
    CHECK(diff.json(files + " --a-scale 2")["total"]["differing"] == 100);
}

TEST_CASE("names of layers keep their numbers") {
    const Scratch scratch;
    const std::string start = "_fsdp_wrapped_module._orig_mod.model.layers.",
                      end = ".self_attn.value_projection.weight";
    const fs::path a = save(scratch / "a.safetensors", {{start + "3" + end, {1}}, {start + "4" + end, {1}}}),
                   b = save(scratch / "b.safetensors",
                            {{start + "3" + end, {2}}, {start + "4" + end, {4}}, {start + "5" + end, {4}}});
    const std::string text = diff(a.string() + " " + b.string()).out;
    CAPTURE(text);
    CHECK(contains(text, "\nlayers.4" + end + "  ")); // below what all have
    CHECK(contains(text, "below\n_fsdp_wrapped_module._orig_mod.model."));
    for (const char* number : {".3.", ".4."}) CHECK(contains(text.substr(text.find(" ulps, ")), number));
    CHECK(contains(text, "Only in B: "));
    CHECK(contains(text.substr(text.find("Only in")), ".5."));
}

TEST_CASE("what is missing or broken is said") {
    const Scratch scratch;
    const std::string a = raw(scratch, "a.bin", {1, 2}), b = raw(scratch, "b.bin", {1, 2, 3});
    diff.check_error(a + " " + b + " --dtype F32", 1, {"b.bin", "3 elements, the other has 2"});
    diff.check_error(a + " /nonexistent --dtype F32", 1, {"/nonexistent"});
    CHECK(contains(diff(a + " " + b).err,
                   "a.bin: unknown kind of file; name it .safetensors, .npy, .npz or .pt, or say "
                   "what it holds with --dtype\n"));
    diff.check_error(a, 2, {"B is required"});
    diff.check_error(a + " " + b + " --gate 'ulps<1'", 2, {"unknown figure 'ulps'; known: differ"});
    diff.check_error(a + " " + b + " --gate 'nan<1%'", 2, {"a number without %"});
    diff.check_error(a + " " + b + " --gate nan", 2, {"FIGURE<LIMIT"});
    diff.check_error(a + " " + b + " --tensor '['", 2, {"no regular expression"});
    diff.check_error(a + " " + b + " --tensor " + std::string(100'000, 'x'), 2, {"longer than 1000 characters"});
    diff.check_error(a + " " + b + " --tensor '(a)\\1'", 2, {"refers back to a part of itself"});
    fs::create_directory(scratch / "long");
    const std::string far = raw(scratch, "long/" + std::string(200, 'a') + "c.bin", {1});
    CHECK(diff(far + " " + far + " --dtype F32 --tensor '(a+)+$'").code == 1); // at once, without a match
    const std::string sample = AMP_SAMPLE;
    const Outcome other = diff(sample + "/deep_tanh " + sample + "/digits_cnn");
    CHECK(other.code == 1);
    CHECK(contains(other.err, sample + "/deep_tanh and " + sample + "/digits_cnn have no tensor of one name and step"));
    fs::create_directory(scratch / "folder");
    write_file(scratch / "folder/cut.npz", "PK");
    const std::string folder = (scratch / "folder").string();
    diff.check_error(folder + " " + folder, 1, {"cut.npz: "}); // one line for one file
    const Json one = diff.json(sample + "/deep_tanh " + sample + "/deep_tanh/step_000050.safetensors");
    CHECK(one["only_a"].size() > 0);
    CHECK(one["only_b"].empty());
    CHECK(one["total"]["differing"] == 0);
    CHECK(diff(sample + "/deep_tanh " + sample + "/deep_tanh/step_000050.safetensors --gate 'missing<=0'").code == 3);
}

TEST_CASE("of one element it is not said that they are many") {
    const Scratch scratch;
    const std::string a = raw(scratch, "a.bin", {1}), b = raw(scratch, "b.bin", {2});
    CHECK(contains(diff(a + " " + b + " --dtype F32").out, "They differ: 1 of 1 element (100 %)."));
}

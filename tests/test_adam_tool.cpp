// amp-adam as users run it: run folders with and without state, series, single gradients, bad input.
#include "recorded_files.h"
#include "tool.h"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

using namespace amp;
using namespace amp::test;

namespace {

using Json = nlohmann::json;

const Tool adam{AMP_ADAM};

Json results(const std::string& arguments) { return adam.json(arguments)["inputs"][0]; }

} // namespace

TEST_CASE("a run with its state is replayed exactly, and so is one whose every gradient is there") {
    const Scratch scratch;
    const std::string runs = (scratch / "runs").string();
    REQUIRE(run_command(AMP_TRAIN
                        " --model mlp --steps 20 --record-every 1 --record-state --lr 0.002 --precision fp32,pure-bf16 "
                        "--record " +
                        runs)
                .code == 0);
    const Json recorded = results(runs + "/fp32");
    CHECK(recorded["basis"] == "recorded");
    CHECK(recorded["exact"] == true);
    CHECK(recorded["step"] == 19);
    CHECK(recorded["lr"] == 0.002);
    CHECK(recorded["kind"] == "adamw");
    // The trainer's own count for that step.
    const auto counted = [&](const std::string& run) {
        return Json::parse(lines_of(read_file(runs + "/" + run + "/metrics.jsonl")).back())["updates"]["lost"];
    };
    CHECK(recorded["total"]["lost"]["fp32"] == counted("fp32"));
    const Json brain = results(runs + "/pure-bf16");
    CHECK(counted("pure-bf16").get<int>() > 0);
    CHECK(brain["total"]["lost"]["bf16"].get<double>() ==
          doctest::Approx(counted("pure-bf16").get<double>()).epsilon(0.1));

    std::filesystem::rename(runs + "/fp32/state", runs + "/fp32/kept");
    const Json contiguous = results(runs + "/fp32");
    CHECK(contiguous["basis"] == "contiguous");
    CHECK(contiguous["exact"] == true);
    CHECK(contiguous["total"]["states"][0] == recorded["total"]["states"][0]);
    CHECK(contiguous["total"]["sqrt_v_hat"] == recorded["total"]["sqrt_v_hat"]);
    CHECK(contiguous["total"]["lost"].empty()); // no weights
    std::filesystem::remove(runs + "/fp32/gradients/step_000007.safetensors");
    const Json held = results(runs + "/fp32");
    CHECK(held["basis"] == "held");
    CHECK(held["exact"] == false);
    CHECK(results(runs + "/fp32 --step 6")["basis"] == "contiguous");
    CHECK(adam(runs + "/fp32 --json - --threads 1").out == adam(runs + "/fp32 --json - --threads 3").out);

    const Outcome table = adam(runs + "/pure-bf16 --worst 2 --svg " + (scratch / "a.svg").string() + " --html " +
                               (scratch / "a.html").string());
    CHECK(table.code == 0);
    for (const std::string part :
         {"exact: the state", "fp16 decides", "eps in fp16: ", "v cannot decay", "2 of 6 tensors", "Advice: eps 1e-08"})
        CHECK_MESSAGE(contains(table.out, part), part);
    for (const std::string& line : lines_of(table.out)) CHECK(line.size() <= 82);
    CHECK(contains(read_file(scratch / "a.svg"), "The sweep of eps"));
    for (const std::string part :
         {"The sweep of eps", "<th scope=\"col\">fp16 decides</th>", "<strong>Advice:</strong>"})
        CHECK_MESSAGE(contains(read_file(scratch / "a.html"), part), part);
}

TEST_CASE("steps that a loss scaler skipped are no updates") {
    const Scratch scratch;
    const std::string run = (scratch / "runs/amp-fp16").string();
    REQUIRE(run_command(AMP_TRAIN
                        " --model mlp --steps 24 --record-every 1 --record-state --loss-weight 64 --growth-interval 5 "
                        "--precision amp-fp16 --record " +
                        (scratch / "runs").string())
                .code == 0);
    int skipped = 0;
    for (const std::string& line : lines_of(read_file(run + "/metrics.jsonl")))
        skipped += Json::parse(line)["skipped"].get<bool>();
    CHECK(skipped > 3);
    const Json recorded = results(run + " --step 21");
    std::filesystem::remove_all(run + "/state");
    const Json contiguous = results(run + " --step 21");
    CHECK(contiguous["basis"] == "contiguous");
    CHECK(contiguous["total"]["states"][0] == recorded["total"]["states"][0]);
}

TEST_CASE("one gradient is taken for that of every step") {
    const std::string file = AMP_SAMPLE "/deep_tanh/step_000050.safetensors";
    const Json one = results(file + " --eps 1e-8,1e-12 --at 1e-10 --tensor weight --beta2 0.99 --assume-steps 20");
    CHECK(one["basis"] == "stationary");
    CHECK(one["eps"] == 1e-10);
    CHECK(one["total"]["states"][0]["eps"].size() == 3);
    CHECK(one["total"]["states"][1]["v_stuck"].get<double>() < 0.01 * one["total"]["elements"].get<double>());
    CHECK(contains(one["advice"].get<std::string>(), "It mutes") == false);
    for (const Json& t : one["tensors"]) CHECK(contains(t["tensor"].get<std::string>(), "weight"));
    const Json usual = results(file);
    CHECK(contains(usual["advice"].get<std::string>(), "mutes h.0.weight.grad"));
    CHECK(usual["total"]["states"][2]["eps"][4]["stored"] == 0); // 1e-8 in FP16
    CHECK(results(AMP_SAMPLE "/deep_tanh")["basis"] == "held");
}

TEST_CASE("the caption of tensors that stand below a prefix ends once") {
    const Scratch scratch;
    const fs::path file = save(scratch / "g.safetensors", {{"model.h.0.w.grad", {1, 2}}, {"model.h.1.w.grad", {1, 2}}});
    const std::string text = run_command(AMP_ADAM " " + file.string()).out;
    CHECK(contains(text, "2 tensors, below model. Medians"));
}

TEST_CASE("a tensor without elements takes no step") {
    CHECK(adam.json(AMPSCOPE_TEST_DATA "/io/empty.npy")["inputs"][0]["total"]["elements"] == 0);
}

TEST_CASE("bad input") {
    const Scratch scratch;
    adam.check_error("/nonexistent", 1, {"/nonexistent", "does not exist"});
    adam.check_error((scratch / "").string() + " --tensor x", 1, {"no .safetensors, .npy"});
    const Outcome raw = adam(write_file(scratch / "a.bin", "1234").string()); // advice for tools with that option
    CHECK(raw.err.ends_with("a.bin: unknown kind of file; name it .safetensors, .npy, .npz or .pt\n"));
    fs::remove(scratch / "a.bin");
    // The real error must come first, not that nothing is left to select from.
    const std::string whole = read_file(AMP_SAMPLE "/deep_tanh/step_000050.safetensors");
    const std::string cut = write_file(scratch / "cut.safetensors", whole.substr(0, whole.size() / 2)).string();
    adam.check_error(cut, 1, {cut + ": the tensors end at byte"});
    adam.check_error(AMP_SAMPLE "/deep_tanh --tensor nothing", 1, {"holds no weights' gradients that the options"});
    // A damaged file among good ones: they are reported, and the exit code is 1.
    fs::create_directory(scratch / "both");
    fs::rename(cut, scratch / "both/cut_51.safetensors");
    write_file(scratch / "both/step_000050.safetensors", whole);
    const Outcome both = adam((scratch / "both").string() + " --json -");
    CHECK(both.code == 1);
    CHECK(contains(both.err, "cut_51.safetensors: the tensors end at byte"));
    CHECK(Json::parse(both.out)["inputs"].size() == 1);
    CHECK(Json::parse(both.out)["errors"].size() == 1);
    // Damaged files alone: each has its line.
    fs::remove(scratch / "both/step_000050.safetensors");
    write_file(scratch / "both/cut_52.npz", "PK");
    const Outcome none = adam((scratch / "both").string());
    CHECK(none.code == 1);
    for (const char* file : {"cut_51.safetensors: ", "cut_52.npz: "}) CHECK(contains(none.err, file));
    CHECK(lines_of(none.err).size() == 2);
    fs::remove_all(scratch / "both");
    adam.check_error(AMP_SAMPLE "/deep_tanh --tensor nothing", 1, {"holds no weights' gradients"});
    adam.check_error("", 2, {"PATH is required"});
    for (const std::string optimizer : {"sgd", "lion", "muon-jordan", "adafactor"})
        adam.check_error(AMP_SAMPLE " --optimizer " + optimizer, 2, {optimizer + " has no eps of Adam's"});
    adam.check_error(AMP_SAMPLE " --state e8m0", 2, {"holds scales"});
    adam.check_error(AMP_SAMPLE " --eps 2", 2, {"--eps: expected a number from 0 to 1"});
    adam.check_error(AMP_SAMPLE " --eps 1e-8 --json - --svg -", 2, {"only one of"});
    const Outcome mixed = adam(AMP_SAMPLE "/deep_tanh /nonexistent --json -");
    CHECK(mixed.code == 1);
    CHECK(Json::parse(mixed.out)["inputs"].size() == 1);
}

TEST_CASE("runs of Muon and Adafactor are not judged as Adam's") {
    const Scratch scratch;
    const std::string runs = (scratch / "runs").string();
    const std::string muon = AMP_TRAIN " --model mlp --steps 3 --optimizer muon ";
    // Its products in BF16 have an accumulator, whatever the network computes in.
    REQUIRE(run_command(muon + "--precision fp32,accumulate=hopper-wgmma-bf16 --record " + runs).code == 0);
    for (const char* options : {"", " --optimizer adamw"})
        adam.check_error(runs + "/fp32,accumulate=hopper-wgmma-bf16" + options, 1, {"the run's optimizer is Muon"});
    CHECK(contains(run_command(muon + "--adamw-lr 0").err, "--adamw-lr"));
    REQUIRE(run_command(AMP_TRAIN " --model mlp --steps 3 --optimizer adafactor --record " + runs).code == 0);
    adam.check_error(runs + "/fp32", 1, {"ADAFACTOR, which has no eps of Adam's"});
    CHECK(contains(run_command(muon + "--momentum 1.5").err, "a momentum in (0, 1] for Muon"));
}

TEST_CASE("where eps decides nothing the axis of the sweep begins at 0 %") {
    const Scratch scratch;
    const std::string file = save(scratch / "g.safetensors", {{"w.grad", {1, 2}}}).string();
    const std::string svg = adam(file + " --state fp32 --svg -").out;
    CHECK(contains(svg, "The sweep of eps"));
    CHECK(!contains(svg, ">-0.5<"));
}

TEST_CASE("a step that was not recorded is not examined in silence") {
    const std::string folder = AMP_SAMPLE "/deep_tanh";
    CHECK(contains(adam(folder + " --step 3 --worst 1").err,
                   "amp-adam: warning: " + folder + ": has nothing of step 3; step 0 is examined\n"));
    CHECK(contains(adam(folder + " --step 70 --worst 1").err, "has nothing of step 70; step 50 is examined"));
    CHECK(adam(folder + " --step 50 --worst 1").err.empty());
    const Scratch scratch;
    const std::string file = save(scratch / "g.safetensors", {{"w.grad", {1e-3F, 2e-3F}}}).string();
    CHECK(contains(adam(file + " --step 3").err, file + ": has nothing of step 3; its files name no step\n"));
    CHECK(adam(file).err.empty());
}

// amp-train --against, and amp-report of what it wrote.
#include "tool.h"

#include <algorithm>
#include <functional>

using namespace amp;
using namespace amp::test;

namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

const Tool train{AMP_TRAIN}, report{AMP_REPORT};

const std::string text_of_tokens = []() {
    std::string text;
    for (int i = 0; i < 4000; ++i) text += static_cast<char>('a' + (i * i / 7 + i % 5) % 11);
    return text;
}();

/// The options that name the run of a small GPT in one of three precisions, all trained when the first is asked for.
std::string trained(const std::string& precision) {
    static const Scratch scratch;
    const std::string text = (scratch / "text").string(), runs = (scratch / "runs").string(),
                      data = "--text " + text + " --context 16 ";
    if (!fs::exists(runs)) {
        write_file(text, text_of_tokens);
        const Outcome o = train(data + "--width 32 --heads 2 --batch 16 --steps 20 --record " + runs +
                                " --record-every 0 --checkpoint-every 20 --precision amp-bf16,fp8-current,fp8-delayed");
        REQUIRE_MESSAGE(o.code == 0, o.err);
    }
    return data + "--evaluate " + runs + "/" + precision;
}

} // namespace

TEST_CASE("amp-train --against: equal settings give zeros, others tell where they differ") {
    const std::string run = trained("amp-bf16");
    const Json all = train.json(run + " --against as-trained,amp-bf16,fp32,amp-bf16,accumulate=exact");
    CHECK(all["training"] == "amp-bf16");
    REQUIRE(all["servings"].size() == 4);
    for (const int same : {0, 1}) {
        const Json& s = all["servings"][static_cast<std::size_t>(same)];
        CHECK(s["ops"].empty());
        CHECK(s["first_op"].is_null());
        CHECK(s["token"]["token_mult_prob_error"] == 1.0);
        for (const char* zero : {"gen_kl_error", "policy_kl_error", "js_divergence_error", "chi2_token"})
            CHECK(s["token"][zero] == 0.0);
        for (const char* zero : {"kl_training_serving", "kl_serving_training", "js_divergence", "chi2"})
            CHECK(s["distribution"][zero] == 0.0);
        CHECK(s["training_loss"] == s["serving_loss"]);
    }
    const Json &fp32 = all["servings"][2], &exact = all["servings"][3];
    CHECK(fp32["tokens"] == 23 * 16); // a tenth of the text, in windows of 16
    CHECK(fp32["first_op"] == "h.0.attn.q.linear");
    CHECK(fp32["distribution"]["kl_training_serving"].get<double>() > 0);
    CHECK(exact["distribution"]["kl_training_serving"].get<double>() <
          fp32["distribution"]["kl_training_serving"].get<double>());
    for (const Json& op : fp32["ops"]) {
        CHECK(op["op"] != "transpose");
        CHECK(op["relative"].get<double>() > 0);
    }
    // The losses are those of evaluation: what amp-train --weights-as calls "as trained", to the rounding of its FP32.
    const Json served = train.json(run + " --kv-cache e4m3");
    CHECK(fp32["training_loss"].get<double>() ==
          doctest::Approx(served["served"][0]["loss"].get<double>()).epsilon(1e-6));
    const Json cache = train.json(run + " --against as-trained --kv-cache e4m3");
    CHECK(cache["servings"][0]["serving"] == "as-trained, KV cache e4m3");
    CHECK(cache["servings"][0]["serving_loss"].get<double>() ==
          doctest::Approx(served["served"][1]["loss"].get<double>()).epsilon(1e-6));
    // Another attention is another order of sums, and under autocast has other roundings.
    const Json fused = train.json(run + " --against as-trained --attention fused:8x8,max=plain");
    CHECK(fused["servings"][0]["serving"] == "as-trained, attention fused:8x8");
    CHECK(fused["servings"][0]["distribution"]["kl_training_serving"].get<double>() > 0);
    CHECK(fused["servings"][0]["training_loss"] == cache["servings"][0]["training_loss"]);
    const Json with_tiles = train.json(run + " --attention fused:8x8")["served"];
    REQUIRE(with_tiles.size() == 2);
    CHECK(with_tiles[0] == served["served"][0]);
    CHECK(with_tiles[1]["narrow"] == "attention fused:8x8");
    CHECK(fused["servings"][0]["serving_loss"].get<double>() ==
          doctest::Approx(with_tiles[1]["loss"].get<double>()).epsilon(1e-6));
    CHECK(with_tiles[1]["loss"] != with_tiles[0]["loss"]);
    const Json both = train.json(run + " --kv-cache e4m3 --attention fused:8x8")["served"];
    REQUIRE(both.size() == 4);
    CHECK(both[1] == with_tiles[1]);
    CHECK(both[2] == served["served"][1]);
    CHECK(both[3]["narrow"] == "all");
    CHECK(both[3]["loss"] != both[2]["loss"]);
    // From one precision to the other is the way back, with training's side exchanged.
    const Json back = train.json(run + " --precision fp32 --against amp-bf16");
    CHECK(back["training"] == "fp32");
    CHECK(back["servings"][0]["distribution"]["kl_training_serving"] == fp32["distribution"]["kl_serving_training"]);
    CHECK(back["servings"][0]["training_loss"] == fp32["serving_loss"]);
}

TEST_CASE("amp-train --against as-trained,key=value changes that key alone") {
    const Scratch scratch;
    const std::string runs = (scratch / "runs").string(), data = "--modulus 7 ";
    const std::string words = "--width 16 --heads 2 --batch 8 --steps 4 --record-every 0 --checkpoint-every 4 ";
    const auto trains = [&](const std::string& options) {
        const Outcome o = train(data + words + options + " --record " + runs);
        REQUIRE_MESSAGE(o.code == 0, o.err);
    };
    const auto serving = [&](const std::string& run, const std::string& options) {
        return train.json(data + "--evaluate '" + runs + "/" + run + "' --against " + options)["servings"][0];
    };
    trains("--autocast-policy cpu --layer h.0.mlp:fp32 --precision amp-bf16,accumulate=hopper-wgmma-bf16");
    const std::string run = "amp-bf16,accumulate=hopper-wgmma-bf16";
    CHECK(serving(run, "as-trained,m=bf16")["ops"].empty()); // nothing of forward: tables and policies stay
    CHECK_FALSE(serving(run, "amp-bf16,accumulate=hopper-wgmma-bf16")["ops"].empty());
    CHECK_FALSE(serving(run, "as-trained,accumulate=exact")["ops"].empty()); // another one than the run has already
    trains("--precision fp8-current,fp8-delayed");
    CHECK_FALSE(serving("fp8-current", "as-trained,scaling-format=e5m2")["ops"].empty());
    const Json cached = serving("fp8-delayed", "as-trained --kv-cache e4m3"); // whose scales are current ones
    CHECK(cached["ops"][0]["tensor"] == "h.0.attn.matmul");
    const auto refused = [&](const std::string& name, const std::string& options, std::string_view part) {
        train.check_error(data + "--evaluate '" + runs + "/" + name + "' --against " + options, 2, {part});
    };
    for (const char* other : {"fp8-delayed,scaling-margin=2", "fp8-delayed,scaling-history=4",
                              "fp8-delayed,scaling-amax=most-recent", "as-trained,scaling-format=e5m2"})
        refused("fp8-delayed", other, "left no such delayed scale");
    refused("fp8-current", "as-trained-x", "unknown precision 'as-trained-x'");
    refused("fp8-current", "fp32,accumulate=hopper-wgmma-fp8", "no matrix product");
}

TEST_CASE(
    "amp-train --against: weights in a narrower format, published networks, running statistics, fused attention") {
    const std::string run = trained("amp-bf16"), tied = AMPSCOPE_TEST_DATA "/torch/published/llama";
    // Weights that serving keeps in BF16 are those that autocast casts, so that its products read the same.
    const Json kept = train.json(run + " --against as-trained,master=bf16")["servings"][0];
    const auto product = [&](const std::string& name) {
        return std::ranges::any_of(kept["ops"], [&](const Json& op) { return op["tensor"] == name; });
    };
    CHECK_FALSE(product("h.0.attn.q.linear:bf16"));
    CHECK(kept["distribution"]["kl_training_serving"].get<double>() >= 0);
    const Json narrow = train.json(run + " --against as-trained --weights-as e4m3 --activations-as e4m3");
    CHECK(narrow["servings"][0]["serving"] == "as-trained, weights e4m3, activations e4m3");
    const Json served = train.json(run + " --weights-as e4m3 --activations-as e4m3");
    CHECK(narrow["servings"][0]["serving_loss"].get<double>() ==
          doctest::Approx(served["served"].back()["loss"].get<double>()).epsilon(1e-6));
    const Json published =
        train.json("--evaluate " + tied + " --modulus 7 --precision amp-bf16 --against as-trained,amp-bf16");
    CHECK(published["steps"].is_null());
    CHECK(published["trained_in"] == "fp32");
    CHECK(published["training"] == "amp-bf16");
    CHECK_FALSE(published["servings"][0]["ops"].empty()); // as-trained is FP32
    CHECK(published["servings"][1]["ops"].empty());
    const Scratch scratch;
    const std::string runs = (scratch / "runs").string();
    using Network = std::pair<std::string, std::string>; // and its data
    for (const Network& n : {Network{"--model resnet --width 4 --depth 1 ", ""},
                             Network{"--width 16 --heads 2 --attention fused ", "--modulus 7 "}}) {
        const std::string folder = runs + (n.second.empty() ? "/r" : "/f");
        const Outcome o = train(n.first + n.second + "--batch 8 --steps 3 --precision amp-bf16 --checkpoint-every 3 " +
                                "--record-every 0 --record " + folder);
        REQUIRE_MESSAGE(o.code == 0, o.err);
        const Json same =
            train.json(n.second + "--evaluate " + folder + "/amp-bf16 --against as-trained --against-batch 2");
        CHECK(same["servings"][0]["ops"].empty());
        const Json result = Json::parse(read_file(folder + "/amp-bf16/result.json"));
        CHECK(same["servings"][0]["training_loss"].get<double>() ==
              doctest::Approx(result["validation_loss"].get<double>()).epsilon(1e-6));
    }
}

TEST_CASE("amp-train --against-batch: the same sequence alone and in a batch") {
    const std::string bf16 = trained("amp-bf16"), fp8 = trained("fp8-current"), delayed = trained("fp8-delayed");
    const auto serving = [](const std::string& words) { return train.json(words)["servings"][0]; };
    for (const std::string& words : {bf16, fp8, delayed}) {
        const std::string run = words.substr(words.find("--evaluate ") + 11);
        const Json result = Json::parse(read_file(run + "/result.json"));
        CAPTURE(run); // training's side is what the trainer evaluated at its end, scales included
        CHECK(serving(words + " --against as-trained")["training_loss"].get<double>() ==
              doctest::Approx(result["validation_loss"].get<double>()).epsilon(1e-6));
    }
    for (const int batch : {1, 4}) // an op sums each row in an order of its own, whatever stands beside it
        CHECK(serving(bf16 + " --against as-trained --against-batch " + std::to_string(batch))["ops"].empty());
    const std::string order = "as-trained,accumulate=exact"; // of sums
    CHECK(serving(bf16 + " --against " + order)["ops"].size() > 1);
    CHECK(serving(bf16 + " --against " + order + " --against-batch 4")["token"] ==
          serving(bf16 + " --against amp-bf16,accumulate=exact")["token"]);
    const Json scaled = serving(fp8 + " --against as-trained --against-batch 4"); // but a scale is that of the batch
    CHECK(scaled["first_op"] == "h.0.attn.q.linear");
    CHECK(scaled["tokens"] == 23 * 16);
    CHECK(scaled["ops"][0]["elements"] == (16 + 8) * 16 * 32); // of whole parts, of which the last has one example more
    CHECK(scaled["distribution"]["kl_training_serving"].get<double>() > 1e-7);
    CHECK(serving(fp8 + " --against as-trained --against-batch 16")["ops"].empty());
    CHECK(serving(delayed + " --against as-trained --against-batch 4")["ops"].empty()); // its scales come from training
    train.check_error(fp8 + " --against fp8-delayed", 2, {"fp8-delayed", "left no such delayed scale"});
    train.check_error(bf16 + " --against as-trained --against-batch 3", 2, {"batches of 3", "16"});
}

TEST_CASE("amp-train --against: wrong usage, and what gives no probabilities") {
    const Scratch scratch;
    const std::string run = trained("amp-bf16");
    train.check_error(run + " --against fp17", 2, {"fp17", "amp-fp16"});
    train.check_error(run + " --against fp32,", 2, {"--against", "missing"});
    train.check_error(run + " --against fp32 --precision fp32,amp-fp16", 2, {"--precision", "one precision"});
    train.check_error(run + " --precision fp32 --kv-cache e4m3", 2, {"--precision has no effect with --evaluate"});
    train.check_error(run + " --worst 3 --kv-cache e4m3", 2, {"--worst", "--against"});
    train.check_error("--against fp32", 2, {"--evaluate"});
    const std::string runs = (scratch / "linear").string();
    REQUIRE(train("--model linear --precision fp32 --steps 2 --record " + runs + " --checkpoint-every 2").code == 0);
    train.check_error("--evaluate " + runs + "/fp32 --against amp-bf16", 2, {"linear", "no probabilities"});
    REQUIRE(train("--model mlp --precision fp32 --steps 2 --record " + runs + "/m --checkpoint-every 2").code == 0);
    CHECK(train.json("--evaluate " + runs + "/m/fp32 --against amp-bf16")["servings"][0]["tokens"] == 359);
}

TEST_CASE("amp-report of training against serving, whole and damaged") {
    const Scratch scratch;
    const std::string run = trained("amp-bf16"), file = (scratch / "a.json").string();
    REQUIRE(train(run + " --against as-trained,fp32 --json " + file).code == 0);
    const std::string text = read_file(file);
    CHECK(report("--json - " + file).out == text); // all that was written is read
    const Outcome shown = report(file);
    CHECK(shown.code == 0);
    CHECK(contains(shown.out, "as-trained: the same bits in every op"));
    CHECK(contains(shown.out, "h.0.attn.q.linear"));
    CHECK(shown.out == train(run + " --against as-trained,fp32").out);
    const std::string page = report("--html - " + file).out;
    CHECK(contains(page, "Where serving leaves training"));

    // In the folder of the run it is a section of the run's report.
    const std::string folder = run.substr(run.find("--evaluate ") + 11), kept = folder + "/against.json";
    REQUIRE(train(run + " --against as-trained,fp32 --json " + kept).code == 0);
    const Json whole = report.json(folder);
    REQUIRE(whole["against"].size() == 1);
    CHECK(whole["against"][0]["report"] == Json::parse(text));
    CHECK(contains(report("--html - " + folder).out, "Training against serving: "));
    Json stale = Json::parse(text);
    stale["steps"] = 10;
    write_file(kept, stale.dump());
    const Outcome left = report("--json - " + folder);
    CHECK(contains(left.err, "warning: " + kept + ": is of step 10, and the run has 20: left out"));
    CHECK(Json::parse(left.out)["against"].empty());
    stale["trained_in"] = "fp32";
    write_file(kept, stale.dump());
    CHECK(contains(report("--json - " + folder).err, "is of a run in fp32"));
    write_file(kept, text.substr(0, 100));
    const Outcome broken = report("--json - " + folder);
    CHECK(broken.code == 1);
    CHECK(contains(broken.err, "against.json"));
    fs::remove(kept);

    const auto damaged = [&](const std::function<void(Json&)>& damage, std::string_view what) {
        Json json = Json::parse(text);
        damage(json);
        const std::string other = (scratch / "b.json").string();
        write_file(other, json.dump());
        report.check_error(other, 1, {"b.json", what});
    };
    damaged([](Json& j) { j["schema_version"] = 9; }, "schema_version is 9");
    damaged([](Json& j) { j["servings"][0].erase("tokens"); }, "tokens");
    damaged([](Json& j) { j["servings"][1]["ops"][0]["differing"] = 1U << 30; }, "more elements differ");
    damaged([](Json& j) { j["servings"][1]["ops"][0]["relative"] = -1; }, "negative");
    damaged([](Json& j) { j["servings"][1]["tokens"] = -4; }, "whole number");
    damaged([](Json& j) { j["servings"][1]["batch"] = 0; }, "batch");
    damaged([](Json& j) { j["servings"] = 3; }, "no list");
    damaged([](Json& j) { j["servings"].clear(); }, "no servings");
    damaged([](Json& j) { j["servings"][1]["token"]["gen_kl_error"] = -1; }, "gen_kl_error is -1");
    damaged([](Json& j) { j["servings"][1]["token"]["largest_at"] = 1000000; }, "beyond all tokens");
    damaged([](Json& j) { j["servings"][1]["token"] = "x"; }, "");
    damaged([](Json& j) { j["servings"][1]["distribution"]["other_choice"] = 1000000; }, "choices");
    report.check_error(file + " " + file, 2, {"reported by itself"});
    const std::string other = (scratch / "c.json").string();
    write_file(other, "{\"x\": 1}");
    report.check_error(other, 1, {"c.json", "no report that is read", "--against"});
}

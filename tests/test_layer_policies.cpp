// Layers whose arithmetic differs from the rest of the network: the text of a policy, which layers it changes, and how
// a run's folder tells of it. What the layers then compute is in test_layer_arithmetic.cpp.
#include "tool.h"

#include <ampscope/sim/train/configuration.h>
#include <ampscope/sim/train/data/dataset.h>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

using namespace amp;
using namespace amp::test;
using Json = nlohmann::ordered_json;

namespace {

const Tool train{AMP_TRAIN};

Precision with_layers(const std::string& text, const std::vector<LayerPolicy>& policies) {
    Precision p = precision(text);
    for (const LayerPolicy& policy : policies) p.add_layer(policy.modules, policy.text);
    return p;
}

/// What the policy makes of a layer of a network in that precision.
LayerArithmetic arithmetic(const std::string& text, const std::string& of = "fp32") {
    return with_layers(of, {{"x", text}}).at("x.");
}

} // namespace

TEST_CASE("the text of a policy is a format or recipe and keys, as a precision's") {
    CHECK(arithmetic("bf16").operands == format("bf16"));
    CHECK(arithmetic("bf16").keeps_wide);
    CHECK_FALSE(arithmetic("bf16").autocast_off);
    CHECK(arithmetic("bf16", "fp8-current,operands=tf32").operands == format("bf16"));
    CHECK_FALSE(arithmetic("bf16", "fp8-current").scaling);
    for (const char* name : {"fp32", "FP32", "float32"}) {
        CHECK(arithmetic(name, "fp8-current").autocast_off);
        CHECK_FALSE(arithmetic(name, "fp8-current").scaling);
        CHECK(arithmetic(name, "tf32").operands == format("fp32"));
    }
    CHECK(arithmetic("tf32").operand_rounding == Rounding::nearest_away);
    CHECK(arithmetic("tf32-truncate").operand_rounding == Rounding::toward_zero);
    CHECK(arithmetic("tf32", "amp-fp16").autocast_off);
    for (const char* name : {"fp8-delayed", "fp8-current", "fp8-block", "mxfp8", "nvfp4", "deepseek", "ms-amp"}) {
        const LayerArithmetic layer = arithmetic(name, "fp32,operands=tf32");
        CHECK(layer.scaling == precision(name).scaling);
        CHECK(layer.accumulators == precision(name).accumulators);
        CHECK(layer.operands == format("fp32"));
        CHECK_FALSE(layer.autocast_off);
        CHECK_FALSE(layer.keeps_wide);
    }
    const LayerArithmetic parts = arithmetic("fp8-delayed,scaling-history=3,scaling-amax=most-recent,scaling-margin=1,"
                                             "accumulate=exact,accumulate-backward=hopper-wgmma-fp8,autocast=off");
    CHECK(parts.scaling->history == 3);
    CHECK(parts.scaling->most_recent);
    CHECK(parts.scaling->margin == 1);
    CHECK(parts.accumulators == accumulators("exact"));
    CHECK(parts.backward_accumulators == accumulators("hopper-wgmma-fp8"));
    CHECK(parts.autocast_off);
    CHECK(arithmetic("operands=tf32,operand-rounding=toward_zero").operand_rounding == Rounding::toward_zero);
    CHECK(precision("fp32,operands=tf32,operand-rounding=toward_zero").operand_rounding == Rounding::toward_zero);
    // Accumulators stay where a policy says nothing of them: they are the hardware's.
    CHECK(arithmetic("bf16", "deepseek").accumulators == accumulators("hopper-wgmma-fp8"));
    CHECK(arithmetic("scaling=te-block", "fp8-current").scaling->name == "te-block");
    CHECK_FALSE(arithmetic("scaling=none", "fp8-current").scaling);
    CHECK(arithmetic("scaling-history=7", "fp8-delayed").scaling->history == 7);
}

TEST_CASE("a policy that makes no sense is named") {
    const auto refuses = [](const std::string& text, const std::string& part, const std::string& of = "fp32") {
        CAPTURE(text);
        CHECK_THROWS_WITH_AS(arithmetic(text, of), doctest::Contains(part.c_str()), std::invalid_argument);
        CHECK_THROWS_WITH_AS(arithmetic(text, of), doctest::Contains(("layer x:" + text + ": ").c_str()),
                             std::invalid_argument);
    };
    refuses("bf17", "unknown format or recipe of a layer 'bf17'; known: fp32, tf32, ");
    refuses("amp-bf16", "'amp-bf16'"); // autocast's format is the network's
    refuses("pure-bf16", "'pure-bf16'");
    refuses("e8m0", "'e8m0'");
    refuses("", "''");
    refuses("accumulate=exact,bf16", "'bf16' has to come first");
    refuses("v=bf16", "unknown key of a layer 'v'; known: autocast, operands, ");
    refuses("weights=bf16", "'weights'");
    refuses("autocast=never", "'never'; known: on, off");
    refuses("scaling-history=3", "needs a recipe before it");
    refuses("scaling-history=3", "scaling-history=3", "fp8-current");
    refuses("scaling=te", "'te'");
    refuses("accumulate=abacus", "abacus");
    refuses("bf16,autocast=on,autocast=off", "autocast= is given twice");
    refuses("operand-rounding=stochastic", "without randomness");
    CHECK_THROWS_AS(precision("fp32,operand-rounding=stochastic"), std::invalid_argument);
    CHECK_THROWS_AS(precision("fp32,autocast=off"), std::invalid_argument); // a key of layers only
}

TEST_CASE("a module is named with all in it, or by a shell's pattern") {
    const auto names = [](const std::string& modules, const std::string& scope) {
        return with_layers("fp32", {{modules, "tf32"}}).at(scope).operands == format("tf32");
    };
    CHECK(names("h.0", "h.0."));
    CHECK(names("h.0", "h.0.mlp.up."));
    CHECK(names("h", "h.0.mlp.up."));
    CHECK_FALSE(names("h.0", "h.00.mlp."));
    CHECK_FALSE(names("h.0", "h."));
    CHECK_FALSE(names("h.0.mlp", "h.0.attn."));
    CHECK_FALSE(names("mlp", "h.0.mlp."));
    CHECK(names("h.*.mlp", "h.11.mlp.up."));
    CHECK(names("*.mlp", "h.11.mlp.up.")); // * spans dots, as in Python's fnmatch
    CHECK_FALSE(names("h.*.mlp", "h.mlp."));
    CHECK(names("h.?", "h.1.mlp."));
    CHECK_FALSE(names("h.?", "h.11.mlp."));
    CHECK(names("h.[01]", "h.1."));
    CHECK_FALSE(names("h.[!01]", "h.1."));
    CHECK(names("h.[0]", "h.[0].")); // the name itself
    CHECK(names("*", "head."));
    CHECK(names("*", ""));  // what is in no module
    CHECK(names("*", ".")); // the network itself, called as a layer
    CHECK(names("", "head."));
}

TEST_CASE("of several policies later ones win for the keys that they set") {
    const Precision p = with_layers("fp8-delayed", {{"h.*", "accumulate=exact"},
                                                    {"h.1", "bf16"},
                                                    {"h.2", "scaling-history=5,accumulate-backward=kahan"},
                                                    {"h.2.mlp", "scaling=none"},
                                                    {"*", "scaling-margin=2"},
                                                    {"h.3", "fp32"},
                                                    {"h.3", "mxfp8"}});
    CHECK(p.at("h.0.").accumulators == accumulators("exact"));
    CHECK(p.at("h.0.").scaling->history == precision("fp8-delayed").scaling->history);
    CHECK(p.at("h.0.").scaling->margin == 2);
    CHECK(p.at("h.1.").operands == format("bf16"));
    CHECK(p.at("h.1.").accumulators == accumulators("exact"));
    CHECK_FALSE(p.at("h.1.").scaling); // a margin says nothing there
    CHECK(p.at("h.2.").scaling->history == 5);
    CHECK(p.at("h.2.").accumulators == accumulators("exact"));
    CHECK(p.at("h.2.").backward_accumulators == accumulators("kahan"));
    CHECK_FALSE(p.at("h.2.mlp.up.").scaling);
    CHECK(p.at("h.3.").scaling->name == precision("mxfp8").scaling->name);
    CHECK_FALSE(p.at("h.3.").autocast_off);
    CHECK_FALSE(p.at("head.").scaling); // the policy that every precision begins with
    CHECK(with_layers("fp8-current", {{"head", "fp8-current"}}).at("head.").scaling);
    CHECK(p.has_recipe());
    CHECK_FALSE(with_layers("amp-bf16", {{"h.0", "tf32"}}).has_recipe());
    CHECK(with_layers("amp-bf16", {{"h.*", "mxfp8"}}).has_recipe());
    CHECK_FALSE(precision("amp-bf16").may_use(accumulator("hopper-wgmma-fp8")));
    CHECK(with_layers("amp-bf16", {{"h.*", "mxfp8"}}).may_use(accumulator("hopper-wgmma-fp8")));
}

TEST_CASE("run.json has the table of layers, and is read again") {
    const Dataset data = digits_data();
    const auto written = [&](const Precision& p) {
        TrainOptions o{.model = model("mlp").defaults, .precision = p};
        return configuration_of(o, data);
    };
    const auto rows = [](const Json& configuration) { return configuration["precision"]["layers"].dump(); };
    const Precision p = with_layers("fp8-current", {{"h.*", "fp8-delayed,scaling-history=3"}, {"h.1", "autocast=off"}});
    const Json json = written(p);
    CHECK(rows(json) == R"([{"modules":"head","arithmetic":"scaling=none"},)"
                        R"({"modules":"h.*","arithmetic":"fp8-delayed,scaling-history=3"},)"
                        R"({"modules":"h.1","arithmetic":"autocast=off"}])");
    CHECK(options_of(json).precision.layers == p.layers);
    CHECK(difference(json, written(p)).empty());
    CHECK(difference(json, written(with_layers("fp8-current", {}))) == "/precision/layers/1");
    // What has no effect is not told, so that such runs are equal; what a recipe would leave out is the default then.
    for (const char* plain : {"fp32", "amp-bf16"}) {
        CHECK_FALSE(written(precision(plain))["precision"].contains("layers"));
        CHECK(options_of(written(precision(plain))).precision.layers == precision(plain).layers);
    }
    CHECK_FALSE(written(with_layers("fp32", {{"h.0", "autocast=off"}, {"h.1", "scaling=none"}}))["precision"].contains(
        "layers"));
    const Json off = written(with_layers("amp-bf16", {{"h.0", "autocast=off"}}));
    CHECK(rows(off) == R"([{"modules":"h.0","arithmetic":"autocast=off"}])");
    CHECK(options_of(off).precision.layers == with_layers("amp-bf16", {{"h.0", "autocast=off"}}).layers);
    Precision all = precision("fp8-current"); // head, too
    all.layers.clear();
    CHECK(rows(written(all)) == "[]");
    CHECK(options_of(written(all)).precision.layers.empty());
}

TEST_CASE("run folders of earlier versions are read, and are as one that is written now") {
    const Dataset data = digits_data();
    TrainOptions o{.model = model("mlp").defaults};
    const auto as_before = [&](const std::string& text, const Json& autocast, const Json& scaling) {
        o.precision = precision(text);
        Json json = configuration_of(o, data);
        json["precision"].erase("layers");
        if (!autocast.is_null()) json["precision"]["autocast"]["off"] = autocast;
        if (!scaling.is_null()) json["precision"]["scaling"]["off"] = scaling;
        return json;
    };
    const auto same = [&](const Json& old, const std::string& text, const std::vector<LayerPolicy>& layers) {
        o.precision = precision(text);
        o.precision.layers = layers;
        CHECK(difference(old, configuration_of(o, data)) == "");
        CHECK(options_of(old).precision.layers == layers);
        o.precision.add_layer("h.0", "tf32");
        CHECK(difference(old, configuration_of(o, data)).starts_with("/precision/layers"));
    };
    const LayerPolicy head = last_layer_unscaled();
    same(as_before("fp8-current", Json::array(), {"head"}), "fp8-current", {head});
    same(as_before("fp8-current", {"h.1"}, {"h.0", "head"}), "fp8-current",
         {{"h.0", "scaling=none"}, head, {"h.1", "autocast=off"}});
    same(as_before("fp8-current", Json::array(), Json::array()), "fp8-current", {});
    same(as_before("fp32,scaling=te-current", {}, {"head"}), "fp32,scaling=te-current", {head});
    same(as_before("amp-fp16", {"h.1"}, {}), "amp-fp16", {head, {"h.1", "autocast=off"}});
    same(as_before("amp-fp16", Json::array(), {}), "amp-fp16", {head});
    Json old = as_before("amp-fp16", {"h.1"}, {});
    CHECK(as_written_now(old)["precision"]["layers"] ==
          Json::parse(R"([{"modules":"h.1","arithmetic":"autocast=off"}])"));
    CHECK_FALSE(as_written_now(old)["precision"]["autocast"].contains("off"));
    for (const char* odd : {"7", "null", R"({"precision": 3})", R"({"precision": {"scaling": {"off": [1, {}]}}})"})
        CHECK(difference(Json::parse(odd), Json::parse(odd)).empty());
}

TEST_CASE("regular expressions and the first or last blocks name modules") {
    const std::vector<std::string> known = {"embed",     "h",           "h.0",  "h.0.mlp",     "h.1",          "h.2",
                                            "enc.layer", "enc.layer.0", "head", "h.0.experts", "h.0.experts.7"};
    using Names = std::vector<std::string>;
    CHECK(expand_blocks("first-2", known) == Names{"enc.layer.0", "h.0", "h.1"});
    CHECK(expand_blocks("last-1", known) == Names{"enc.layer.0", "h.2"});
    CHECK(expand_blocks("last-9", known) == Names{"enc.layer.0", "h.0", "h.1", "h.2"}); // experts are in a block
    CHECK(expand_blocks("first-0", known).empty());
    CHECK(expand_blocks("h.*", known) == Names{"h.*"});
    CHECK(expand_blocks("first-class", known) == Names{"first-class"}); // a module may be called so
    CHECK_THROWS_WITH(expand_blocks("last-1", Names{"embed", "head"}), "layer last-1: there are no numbered modules");
    CHECK(names_module("/h\\.[0-1]/", "h.1"));
    CHECK_FALSE(names_module("/h\\.[0-1]/", "h.12"));
    CHECK_FALSE(names_module("/h\\.[0-1]/", "h.2"));
    CHECK_THROWS_WITH(names_module("/h[/", "h.1"), "layer /h[/: not a regular expression");
    const Precision p = with_layers("fp8-current", {{"/h\\.(0|2)\\.mlp/", "bf16"}});
    CHECK(p.at("h.2.mlp.up.").keeps_wide);
    CHECK_FALSE(p.at("h.2.attn.").keeps_wide);

    const auto weights = [](const std::string& layers) {
        return train
            .json("--model mlp --width 16 --depth 3 --batch 8 --steps 2 --precision fp8-current " +
                  layers)["runs"][0]["fingerprint"]
            .get<std::string>();
    };
    CHECK(weights("--layer first-2:bf16") == weights("--layer h.0:bf16 --layer h.1:bf16"));
    CHECK(weights("--layer last-1:bf16") == weights("--layer h.2:bf16"));
    CHECK(weights("--layer '/h\\.(?:0|2)/:bf16'") == weights("--layer h.0:bf16 --layer h.2:bf16"));
    CHECK(weights("--layer first-2:bf16") != weights("--layer last-2:bf16"));
    const Scratch scratch;
    const std::string file = (scratch / "run.toml").string();
    write_file(file, "layer = [\"first-1:mxfp6\", \"/h[.]1/:bf16\", \"last-1:scaling=none\"]\n");
    CHECK(weights("--config " + file) == weights("--layer h.0:mxfp6 --layer h.1:bf16 --layer h.2:scaling=none"));
}

TEST_CASE("an option of a recipe is of the recipe, of all operands or of one") {
    const auto recipe = [](const std::string& options) { return *precision("nvfp4," + options).scaling; };
    CHECK(recipe("scaling-hadamard=off").rotation.size == 0);
    CHECK(recipe("scaling-hadamard=quartet").rotation.every_product);
    CHECK(recipe("scaling-backward-operands=dequantized").backward == BackwardOperands::dequantized);
    const ScalingRecipe all = recipe("scaling-weight-block=1x16,scaling-upper=line,scaling-4over6=mse");
    for (const OperandScaling& operand : {all.input, all.weight, all.gradient}) {
        CHECK(operand.upper ==
              UpperScales{.e4m3_max = 448, .level = UpperLevel::line, .four_over_six = FourOverSix::mse});
        CHECK((operand.across == 1 && operand.along == 16));
    }
    const ScalingRecipe one = recipe("scaling-gradient-random-bits=3,scaling-input-columnwise=dequantized");
    CHECK(one.gradient.random_bits == 3);
    CHECK((one.input.requantizes && !one.weight.requantizes));
    CHECK(precision("quartet2,scaling-weight-rule=nvfp4").scaling->weight_in_backward->rule == ScaleRule::nvfp4);
    for (const auto& [options, error] : std::vector<std::pair<std::string, std::string>>{
             {"scaling-upper=line", "such as 1x16, not 16x16: name one operand (input-upper=line)"},
             {"scaling-4over6=best", "unknown 4over6 'best'; known: off, mae, mse"},
             {"scaling-block=16", "expected a block such as 1x16"},
             {"scaling-weight-block=1x32,scaling-4over6=mae", "4over6 takes blocks of 1x16 and 16x16"},
             {"scaling-random-bits=33", "expected a whole number from 1 to 32"},
             {"scaling-weight-random-bits=8", "weight-random-bits changes nothing: no such operand is rounded"},
             {"scaling-history=3", "unknown option of a recipe 'history'"},
             {"scaling-rule=mx-te,scaling-e4m3-max=256", "which only the rules nvfp4 and quartet have, not mx-te"},
             {"scaling-upper=none", "only the rule amax does without upper scales"},
             {"scaling-scale=e5m2", "only the rule amax has scales of any format"},
             {"scaling-scale-rounding=up", "only the rule amax has scales of any format"},
             {"scaling-rule=mx-te,scaling-upper=tensor", "the rule mx-te has no choice of upper scales"},
             {"scaling-rule=amax,scaling-scale=int8", "int8 has integers"},
             {"scaling-rule=amax,scaling-scale-rounding=stochastic", "not rounded stochastically"},
             {"scaling-rule=amax,scaling-4over6=mae", "which only the rules nvfp4 and quartet have, not amax"},
             {"scaling-format=e8m0", "e8m0 holds scales, not numbers"}})
        CHECK_THROWS_WITH_AS(recipe(options), doctest::Contains(error.c_str()), std::invalid_argument);
    for (const char* rule : {"amax", "affine", "nvfp4", "mx-even"})
        CHECK_THROWS_WITH_AS(precision(fmt::format("fp8-delayed,scaling-rule={}", rule)),
                             doctest::Contains("delayed scaling has a rule of its own"), std::invalid_argument);
    const ScalingRecipe general = *precision("general,scaling-scale=e5m2,scaling-upper=tensor").scaling;
    CHECK(general.weight.scale_format() == format("e5m2"));
    CHECK(general.weight.scale_rounding == Rounding::up);
    using Pair = std::pair<std::string, std::string>;
    for (const auto& [first, other] : // in any order; an option of one operand overrides that of all
         {Pair("rule=amax", "scale=e5m2"), Pair("input-rule=te", "rule=amax"),
          Pair("weight-format=e4m3", "format=e2m1"), Pair("input-format=e2m3", "forward=e3m2"),
          Pair("rule=quartet", "upper=line"), Pair("random-bits=3", "gradient-rounding=stochastic")})
        CHECK(precision("nvfp4-plain,scaling-" + first + ",scaling-" + other).scaling ==
              precision("nvfp4-plain,scaling-" + other + ",scaling-" + first).scaling);
    const std::string one_input = "scaling-input-format=e4m3,scaling-format=e2m1";
    CHECK(precision("general," + one_input).scaling->input.element == format("e4m3"));
    CHECK(precision("general,scaling-block=1x16,scaling-upper=line,scaling-input-rule=mx-floor").scaling->input.upper ==
          UpperScales{});
    CHECK(precision("general,scaling-forward=e3m2,scaling-format=e2m1").scaling->input.element == format("e3m2"));
    for (const auto& [first, other] : {Pair("rule=te", "scale=e8m0"), Pair("rule=te", "scale=fp32"),
                                       Pair("rule=nvfp4", "upper=none"), Pair("rule=te", "scale-rounding=up")})
        for (const std::string& options : {first + ",scaling-" + other, other + ",scaling-" + first})
            CHECK_THROWS_WITH_AS(precision("general,scaling-" + options), doctest::Contains("only the rule amax"),
                                 std::invalid_argument);
    CHECK(precision("int8,scaling-rule=affine,scaling-format=int4").scaling->weight.element == format("int4"));
    CHECK_THROWS_WITH_AS(precision("general,scaling-scale=bf16,scaling-rule=te"),
                         doctest::Contains("only the rule amax has scales of any format"), std::invalid_argument);
    const ScalingRecipe other = *precision("general,scaling-rule=nvfp4").scaling; // leaves no scale of amax behind
    CHECK(other.input.scale_format() == format("e4m3"));
    CHECK(other.input.upper == UpperScales{});
}

TEST_CASE("amp-train's options are rows of the table") {
    const auto run = [](const std::string& options) {
        const auto json = train.json("--model mlp --width 8 --batch 8 --steps 2 " + options)["runs"][0];
        const auto& precision = json["configuration"]["precision"];
        return std::pair(json["fingerprint"].get<std::string>(),
                         precision.contains("layers") ? Json(precision["layers"]).dump() : "");
    };
    const std::string fp8 = "--precision fp8-current ", plain = "--precision amp-fp16 ";
    CHECK(run(plain + "--autocast-off h.0") == run(plain + "--layer h.0:autocast=off"));
    CHECK(run(plain + "--autocast-off h.0").first != run(plain).first);
    CHECK(run(fp8 + "--scaling-off h.0 --scaling-off head").first == run(fp8 + "--layer h.0:scaling=none").first);
    CHECK(run(fp8 + "--scaling-off h.0").first == run(fp8 + "--layer h.0:bf16 --layer head:fp8-current").first);
    CHECK(run(fp8 + "--scaling-off h.0 --layer h.0:mxfp8").first == // --layer comes last, wherever it is written
          run(fp8 + "--layer h.0:mxfp8 --scaling-off h.0").first);
    CHECK(run(fp8 + "--scaling-off h.0 --layer h.0:mxfp8").second ==
          R"([{"arithmetic":"scaling=none","modules":"h.0"},{"arithmetic":"mxfp8","modules":"h.0"}])");
    CHECK(run("--precision amp-bf16 --layer h.1:fp8-current --accumulate hopper-wgmma-fp8").first ==
          run("--precision amp-bf16 --layer h.1:fp8-current,accumulate=hopper-wgmma-fp8").first);
    const auto json =
        train.json("--model mlp --steps 1 --batch 2 --precision fp32,fp32,accumulate=fp32 --layer h.0:bf16");
    for (const auto& each : json["runs"])
        CHECK(each["distance_from_reference"].is_null()); // neither is FP32 throughout
}

TEST_CASE("mistakes in --layer cost one line") {
    const std::string tiny = "--model mlp --steps 1 --batch 2 --precision ";
    train.check_error(tiny + "fp32 --layer h.0", 2, {"--layer h.0: expected MODULES:TEXT"});
    train.check_error(tiny + "fp32 --layer :bf16", 2, {"--layer :bf16: expected MODULES:TEXT"});
    train.check_error(tiny + "fp32 --layer h.0:", 2, {"--layer h.0:: expected MODULES:TEXT"});
    train.check_error(tiny + "fp32 --layer haed:bf16", 2, {"module of layer 'haed'; known: h, h.0, h.1, head"});
    train.check_error(tiny + "fp32 --layer 'h.*.mlp:bf16'", 2, {"module of layer 'h.*.mlp'"});
    train.check_error(tiny + "fp32 --layer h.0:bf17", 2, {"layer h.0:bf17: ", "'bf17'; known: fp32, "});
    train.check_error(tiny + "amp-bf16 --layer h.0:accumulate=hopper-wgmma-fp8", 2,
                      {"layer h.0:accumulate=hopper-wgmma-fp8: no matrix product of forward has operands"});
    for (const std::string half : {"accumulate-forward", "accumulate-backward"})
        train.check_error(tiny + "amp-bf16 --layer h.0:" + half + "=hopper-wgmma-fp8", 2, {half, "no matrix product"});
    train.check_error(tiny + "fp8-current --layer 'h.*:bf16'", 2, {"no layer to scale outside head, h.*"});
    train.check_error("--model linear --steps 1 --batch 2 --precision fp32 --layer head:bf16", 2, {"'head'", "linear"});
}

TEST_CASE("a network is served without the recipes of its training, and its layers in full precision stay so") {
    const Scratch scratch;
    const auto served = [&](const std::string& name,
                            const std::string& layers) { // untrained, so that weights are equal
        const std::string runs = (scratch / name).string();
        train.json("--model mlp --lr 0 --steps 2 --batch 8 --checkpoint-every 2 --precision amp-bf16 --record " + runs +
                   layers);
        return train.json("--weights-as e4m3:tensor --evaluate " + runs + "/amp-bf16")["served"];
    };
    const auto all = served("all", "");
    CHECK(served("recipe", " --layer h.1:fp8-delayed") == all);
    const int bytes = all[1]["weight_bytes"].get<int>();
    CHECK(served("full", " --layer h.1:bf16")[1]["weight_bytes"] == bytes + 128 * 128 - 4); // and no scale
    CHECK(served("off", " --autocast-off h.0")[1]["weight_bytes"] == bytes);
}

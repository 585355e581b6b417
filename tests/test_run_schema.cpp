// The keys of run.json: amp-train writes those of the schema and no other, and what is read again was written.
#include "tool.h"

#include <ampscope/sim/io/run_facts.h>
#include <ampscope/sim/train/configuration.h>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <set>
#include <vector>

using namespace amp;
using namespace amp::test;

namespace {

const Tool trainer{AMP_TRAIN};

void add_keys(const nlohmann::ordered_json& json, const std::string& at, std::vector<std::string>& found) {
    if (!json.is_object() || std::ranges::find(run_keys(), at, &RunKey::pointer) != run_keys().end())
        return found.push_back(at);
    for (const auto& [key, value] : json.items()) add_keys(value, at + "/" + key, found);
}

/// The keys of a run.json that hold a value; below a key of the schema nothing is looked for.
std::vector<std::string> keys_of_run(const nlohmann::ordered_json& configuration) {
    std::vector<std::string> found;
    add_keys(configuration, "", found);
    return found;
}

} // namespace

TEST_CASE("run.json has the keys of its schema and no other, and what is read of it is what is written there") {
    const Scratch scratch;
    const fs::path runs = scratch / "runs";
    REQUIRE(trainer("--model mlp --width 4 --batch 8 --threads 1 --steps 1 --record-every 1 --record-replicas "
                    "--precision fp32,amp-fp16,fp8-current --record " +
                    runs.string())
                .code == 0);
    std::set<std::string> written;
    for (const char* name : {"fp32", "amp-fp16", "fp8-current"}) {
        const auto json = nlohmann::ordered_json::parse(read_file(runs / name / "run.json"));
        for (const std::string& key : keys_of_run(json)) written.insert(key);
        const RunFacts facts = run_facts(json);
        CHECK(facts.precision == name);
        CHECK(facts.tool == "amp-train");
        CHECK(facts.optimizer == "adamw");
        CHECK(facts.seed == 0);
    }
    TrainOptions rare; // what few runs say
    rare.model.norm_eps = 1e-3;
    rare.model.norm_groups = 4;
    rare.model.kv_heads = 2;
    rare.model.hidden = 32;
    rare.model.tied = true;
    rare.model.fused_projections = true;
    rare.model.rope_theta = 100;
    rare.model.attention = "fused";
    rare.model.label_smoothing = 0.125;
    rare.model.z_loss = 1e-4;
    rare.precision.backward_accumulators = accumulators("blackwell-bf16");
    rare.all_reduce.scaled = true;
    rare.shard.sharding = Sharding::zero1;
    rare.optimizer = optimizer("muon").options;
    for (const std::string& key : keys_of_run(configuration_of(rare, {}))) written.insert(key);
    rare.optimizer = optimizer("adafactor").options;
    for (const std::string& key : keys_of_run(configuration_of(rare, {}))) written.insert(key);
    std::set<std::string> schema;
    for (const RunKey& key : run_keys())
        if (key.writer != RunWriter::recorder) schema.insert(key.pointer);
    CHECK(written == schema);
    CHECK(configuration_of({.model = options_of(configuration_of(rare, {})).model}, {})["model"] ==
          configuration_of(rare, {})["model"]);
    CHECK(keys_of_run({{"model", {{"name", "x"}, {"new", 1}}}}) ==
          std::vector<std::string>{"/model/name", "/model/new"});

    for (const char* text :
         {"null", "[]", "7", "{}", R"({"precision": 3, "seed": "x", "optimizer": [1], "tool": null})"}) {
        const RunFacts facts = run_facts(nlohmann::ordered_json::parse(text));
        CHECK(facts.precision.empty());
        CHECK(facts.tool.empty());
        CHECK(!facts.seed);
        CHECK(!facts.lr);
    }
}

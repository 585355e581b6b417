// Networks in Hugging Face's form: their logits are those of transformers, and what is written is what was read.
#include "io_files.h"
#include "tool.h"

#include <ampscope/sim/backend/cpu/cpu.h>
#include <ampscope/sim/io/write.h>
#include <ampscope/sim/train/data/tokens.h>
#include <ampscope/sim/train/published.h>
#include <ampscope/sim/train/serving.h>
#include <ampscope/sim/train/trained.h>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>

using namespace amp;
using namespace amp::test;

namespace {

const std::filesystem::path published_folder = AMPSCOPE_TEST_DATA "/torch/published";

nlohmann::json published_logits() {
    std::ifstream file(published_folder / "logits.json");
    return nlohmann::json::parse(file);
}

/// The logits of a network for these sequences, in FP32.
std::vector<float> logits_of(PublishedNetwork network, const std::vector<std::vector<int>>& tokens) {
    const auto batch = static_cast<std::int64_t>(tokens.size()), length = static_cast<std::int64_t>(tokens[0].size());
    Dataset data{.name = "tokens", .input = {length}, .target = {length}, .read = {}};
    data.vocabulary = data.classes = network.vocabulary;
    Program program;
    Graph g(program, precision("fp32"));
    const Network n = model(network.model.name).build(g, network.model, data, batch);
    Cpu cpu(program, 1);
    for (const Parameter& p : g.parameters()) {
        CAPTURE(program[p.weight].name);
        std::vector<float>& values = network.parameters.at(program[p.weight].name);
        REQUIRE(values.size() >= cpu[p.weight].size()); // positions that no sequence reaches
        std::copy_n(values.begin(), cpu[p.weight].size(), cpu[p.weight].begin());
        values.clear();
    }
    for (const auto& left : network.parameters) CHECK_MESSAGE(left.second.empty(), left.first); // all are used
    float* to = cpu[n.inputs].data();
    for (const auto& row : tokens)
        for (const int token : row) *to++ = static_cast<float>(token);
    cpu.context.training = false;
    replay(cpu, program.forward);
    const std::span<const float> logits = cpu.read(n.outputs);
    return {logits.begin(), logits.end()};
}

/// The largest difference, as a part of the largest number.
double furthest(std::span<const float> got, const std::vector<double>& want) {
    REQUIRE(got.size() == want.size());
    double difference = 0, largest = 0;
    for (std::size_t i = 0; i < want.size(); ++i) {
        difference = std::max(difference, std::abs(got[i] - want[i]));
        largest = std::max(largest, std::abs(want[i]));
    }
    return difference / largest;
}

} // namespace

TEST_CASE("logits of networks that transformers saved are its own, to 2e-6 of the largest") {
    const auto golden = published_logits();
    const auto tokens = golden["tokens"].get<std::vector<std::vector<int>>>();
    REQUIRE(golden["logits"].size() == 3);
    for (const auto& item : golden["logits"].items()) {
        const std::string name = item.key();
        const nlohmann::json& want = item.value();
        CAPTURE(name);
        const PublishedNetwork network = read_published(published_folder / name);
        CHECK(furthest(logits_of(network, tokens), want) < 2e-6);
        CHECK(read_published(published_folder / name / "model.safetensors").parameters == network.parameters);
    }
}

TEST_CASE("what is written is what was read, but for the bias of gpt2's keys") {
    const Scratch scratch;
    for (const char* name : {"llama", "llama_tied", "gpt2"}) {
        CAPTURE(name);
        const PublishedNetwork network = read_published(published_folder / name);
        write_published(scratch / name, network);
        CHECK(is_published(scratch / name));
        const PublishedNetwork again = read_published(scratch / name);
        CHECK(again.parameters == network.parameters);
        CHECK(again.vocabulary == network.vocabulary);
        CHECK(again.context == network.context);
        const auto ours = open_tensor_file(scratch / name / "model.safetensors"),
                   theirs = open_tensor_file(published_folder / name / "model.safetensors");
        REQUIRE(ours->tensors().size() == theirs->tensors().size());
        for (std::size_t i = 0; i < ours->tensors().size(); ++i) {
            const TensorEntry &a = ours->tensors()[i], &b = theirs->tensors()[i];
            CAPTURE(a.name);
            CHECK(a.name == b.name);
            CHECK(a.shape == b.shape);
            std::vector<float> x(a.count), y(b.count);
            ours->read_at(i, 0, std::as_writable_bytes(std::span(x)));
            theirs->read_at(i, 0, std::as_writable_bytes(std::span(y)));
            if (a.name.ends_with("c_attn.bias")) std::fill_n(y.begin() + 24, 24, 0.0F);
            CHECK(x == y);
        }
    }
}

TEST_CASE("networks that ours cannot represent, and broken ones") {
    const Scratch scratch;
    const auto refused = [&](const char* name, const char* key, const nlohmann::json& value, const char* message) {
        CAPTURE(key);
        std::filesystem::copy(published_folder / name, scratch / "copy", std::filesystem::copy_options::recursive);
        std::ifstream in(published_folder / name / "config.json");
        nlohmann::json config = nlohmann::json::parse(in);
        config[key] = value;
        write_file(scratch / "copy" / "config.json", config.dump());
        std::string what;
        try {
            read_published(scratch / "copy");
        } catch (const FileError& error) {
            what = error.what();
        }
        CHECK_MESSAGE(contains(what, message), what);
        std::filesystem::remove_all(scratch / "copy");
    };
    refused("llama", "attention_bias", true, "attention_bias: true is not supported, only false");
    refused("llama", "head_dim", 8, "head_dim: 8 is not supported, only 4");
    refused("llama", "hidden_act", "mish", "hidden_act: 'mish' is not supported");
    refused("llama", "rope_scaling", {{"factor", 8}}, "scaled rotary positions");
    refused("llama", "rope_parameters", {{"rope_type", "llama3"}}, "rope_type");
    refused("llama", "model_type", "mamba", "only llama and gpt2");
    refused("llama", "num_key_value_heads", 4, "heads that divide");
    refused("llama", "num_attention_heads", 0, "sizes of 1");
    refused("llama", "intermediate_size", 0, "sizes of 1");
    refused("llama", "hidden_size", std::int64_t{1} << 62, "sizes of 1");
    refused("gpt2", "n_embd", std::numeric_limits<std::int64_t>::max(), "sizes of 1");
    refused("llama", "rope_parameters", {{"type", "linear"}}, "type");
    refused("llama", "rms_norm_eps", 0, "positive eps");
    refused("llama", "vocab_size", 20, "which the sizes in config.json contradict");
    refused("llama", "num_hidden_layers", 3, "model.layers.2.input_layernorm.weight: missing");
    refused("llama", "num_hidden_layers", 16'000'000, "expected at most 4096 layers");
    refused("llama", "hidden_size", "many", "is no network that can be read");
    refused("llama", "hidden_size", 24.5, "hidden_size: expected a whole number, got 24.5");
    refused("llama", "hidden_size", 1e300, "hidden_size: expected a whole number, got 1e+300");
    refused("gpt2", "n_positions", 7.25, "n_positions: expected a whole number, got 7.25");
    const std::string alone = scratch / "alone.safetensors";
    write_file(alone, "");
    CHECK_THROWS_WITH_AS(
        read_published(alone),
        (alone + ": there is no config.json beside it, which says what the network's sizes are").c_str(), FileError);
    refused("gpt2", "n_inner", 50, "n_inner: 50 is not supported, only 96");
    refused("gpt2", "tie_word_embeddings", false, "tie_word_embeddings");
    PublishedNetwork untied = read_published(published_folder / "gpt2");
    untied.model.tied = false;
    CHECK_THROWS_AS(write_published(scratch / "x", untied), FileError);
}

TEST_CASE("config.json alone says what network it is, and whole numbers may be written with a point") {
    const Scratch scratch;
    std::filesystem::create_directories(scratch / "copy");
    std::ifstream in(published_folder / "llama" / "config.json");
    nlohmann::json config = nlohmann::json::parse(in);
    config["hidden_size"] = config["hidden_size"].get<double>();
    write_file(scratch / "copy" / "config.json", config.dump());
    const PublishedNetwork sizes = read_published_sizes(scratch / "copy"),
                           whole = read_published(published_folder / "llama");
    CHECK(sizes.model.width == whole.model.width);
    CHECK(sizes.vocabulary == whole.vocabulary);
    CHECK(sizes.parameters.empty());
    CHECK(trained_options(scratch / "copy").model.depth == whole.model.depth); // reads no weights
    CHECK_THROWS_AS(read_published(scratch / "copy"), std::exception);
}

TEST_CASE("a published network as it is served, from the command line") {
    const Scratch scratch;
    std::string numbers;
    std::vector<float> tokens;
    for (int i = 0; i < 2000; ++i) tokens.push_back(static_cast<float>((i * i + 3 * i) % 19));
    TensorWriter writer = create_tensor_file(scratch / "t.npy", {{.name = "t", .dtype = DType::f32, .shape = {2000}}});
    writer.append(std::as_bytes(std::span(tokens)));
    writer.commit();
    const Tool train{AMP_TRAIN};
    for (const char* name : {"llama", "llama_tied", "gpt2"}) {
        const Outcome o =
            train("--evaluate " + (published_folder / name).string() + " --data " + (scratch / "t.npy").string() +
                  " --context 8 --weights-as e4m3 --kv-cache e5m2 --json -");
        REQUIRE_MESSAGE(o.code == 0, o.err);
        const auto rows = nlohmann::json::parse(o.out)["served"];
        REQUIRE(rows.size() == 4);
        CHECK(rows[0]["loss"] != rows[1]["loss"]);
        CHECK(rows[0]["loss"] != rows[2]["loss"]);
        CHECK(rows[1]["weight_bytes"] < 0.5 * rows[0]["weight_bytes"].get<double>());
        const Outcome long_one = train("--evaluate " + (published_folder / name).string() + " --data " +
                                       (scratch / "t.npy").string() + " --context 17 --weights-as e4m3");
        CHECK(long_one.code == 1);
        CHECK_MESSAGE(contains(long_one.err, "at most 16 at once"), long_one.err);
    }
    const Outcome learned = train("--model llama --width 16 --heads 2 --context 8 --steps 3 --precision fp32 --data " +
                                  (scratch / "t.npy").string());
    CHECK_MESSAGE(learned.code == 0, learned.err);
    tokens[5] = 0.5F;
    TensorWriter wrong = create_tensor_file(scratch / "u.npy", {{.name = "u", .dtype = DType::f32, .shape = {2000}}});
    wrong.append(std::as_bytes(std::span(tokens)));
    wrong.commit();
    CHECK_THROWS_WITH_AS(tokens_data(scratch / "u.npy", 8),
                         ((scratch / "u.npy").string() + ": u: element 5 is no token number").c_str(), FileError);
}

TEST_CASE("a trained network written for transformers") {
    const Scratch scratch;
    const Tool train{AMP_TRAIN};
    const std::string runs = (scratch / "runs").string(), out = (scratch / "out").string();
    for (const char* model_options : {"--model llama --width 16 --heads 2", "--tied --width 16 --heads 2",
                                      "--tied --fused-projections --width 16 --heads 2"}) {
        REQUIRE(train(std::string(model_options) + " --modulus 7 --steps 4 --precision fp32 --checkpoint-every 4 " +
                      "--record " + runs)
                    .code == 0);
        const Outcome o = train("--evaluate " + runs + "/fp32 --modulus 7 --export " + out);
        REQUIRE_MESSAGE(o.code == 0, o.err);
        const PublishedNetwork network = read_published(out);
        CHECK(network.vocabulary == 9);
        CHECK(network.context == 4);
        const Outcome here = train("--evaluate " + runs + "/fp32 --modulus 7 --weights-as e4m3 --json -"),
                      there = train("--evaluate " + out + " --modulus 7 --weights-as e4m3 --json -");
        REQUIRE_MESSAGE(there.code == 0, there.err);
        const auto a = nlohmann::json::parse(here.out)["served"], b = nlohmann::json::parse(there.out)["served"];
        for (std::size_t i = 0; i < 2; ++i) CHECK(a[i]["accuracy"] == b[i]["accuracy"]);
        std::filesystem::remove_all(runs);
    }
}

// amp-train as users run it: what it prints, what it records, and its messages for mistakes.
#include "tool.h"

#include <ampscope/sim/train/configuration.h>
#include <ampscope/sim/train/trainer.h>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <map>
#include <string>

using namespace amp;
using namespace amp::test;

namespace {

using Json = nlohmann::json;
const Tool train{AMP_TRAIN};

} // namespace

TEST_CASE("a table at the end, and where each run left FP32") {
    const Outcome o = train("--model mlp --steps 20 --precision fp32,amp-fp16,scaler=none,pure-fp16");
    REQUIRE(o.code == 0);
    CHECK(o.err.empty()); // progress is for terminals
    const auto lines = lines_of(o.out);
    REQUIRE(lines.size() > 8);
    CHECK(lines[0] == "mlp on digits: 20 steps, batches of 64, seed 0");
    for (const char* column :
         {"precision", "validation", "accuracy", "skipped", "scale", "grad underflow", "lost updates", "from FP32"})
        CHECK(contains(o.out, column));
    CHECK(lines[3].starts_with("fp32 "));
    CHECK(lines[4].starts_with("amp-fp16,scaler=none "));
    CHECK(lines[5].starts_with("pure-fp16 "));
    CHECK(contains(o.out, "pure-fp16 left FP32:\n"));
}

TEST_CASE("JSON tells all that the table does, and how to run it again") {
    const Json json = train.json("--model cnn --steps 12 --precision fp32,amp-bf16 --seed 3");
    CHECK(json["schema_version"] == 2);
    REQUIRE(json["runs"].size() == 2);
    const Json& run = json["runs"][1];
    CHECK(run["precision"] == "amp-bf16");
    CHECK(run["accuracy"].get<double>() > 0);
    CHECK(run["distance_from_reference"].get<double>() > 0);
    CHECK(run["configuration"]["seed"] == 3);
    CHECK(run["configuration"]["precision"]["autocast"]["format"] == "bf16");
    CHECK(run["updates"]["changed"].get<int>() > 0);
    CHECK(run["fingerprint"].get<std::string>().size() == 16);
}

TEST_CASE("JSON tells where Adam's eps is 0 in the format of v, as the table does") {
    const auto eps_is_zero = [](const std::string& arguments) {
        const std::string run = "--model mlp --width 8 --batch 8 --steps 1 --precision fp32," + arguments;
        const bool is = train.json(run)["runs"][1]["eps_is_zero"];
        CHECK(contains(train(run).out, "is 0 in fp16") == is);
        return is;
    };
    CHECK(eps_is_zero("pure-fp16"));
    CHECK_FALSE(eps_is_zero("pure-fp16 --eps 1e-4"));
    CHECK_FALSE(eps_is_zero("pure-fp16 --optimizer sgd"));
    CHECK_FALSE(eps_is_zero("amp-fp16"));
}

TEST_CASE("the library trains as the tool does, whatever rounds new weights and scales the loss") {
    const Json json = train.json("--model mlp --width 8 --batch 8 --steps 3 --precision "
                                 "fp32,amp-fp16,master-fp16,pure-bf16,pure-bf16-stochastic,pure-bf16-kahan");
    const Dataset data = digits_data();
    REQUIRE(json["runs"].size() == 6);
    for (const Json& run : json["runs"]) {
        CAPTURE(run["precision"]);
        TrainOptions o{.precision = precision(run["precision"].get<std::string>()), .batch = 8};
        o.model = model("mlp").defaults;
        o.model.width = 8;
        o.optimizer = optimizer("adamw").options;
        Trainer trainer(o, data, 1);
        for (int i = 0; i < 3; ++i) trainer.step();
        CHECK(run["fingerprint"] == fingerprint_of(trainer));
    }
}

TEST_CASE("the plan of a step says what decides each format") {
    const Outcome o = train("--explain --model gpt --depth 1 --precision amp-fp16 --clip 1");
    REQUIRE(o.code == 0);
    for (const std::string part : {"forward\n", "backward\n", "check\n", "unscale\n", "update\n", "matmul -> fp16",
                                   "softmax -> fp32", "accumulates: fp32, fused multiply-adds in the order of k",
                                   "tensor cores: Volta, Turing, Ampere, Ada, Hopper, Blackwell",
                                   "because: cuda policy: lower precision", "clipping", "cast -> fp16"})
        CHECK_MESSAGE(contains(o.out, part), part);
    const Outcome off = train("--explain --model gpt --depth 1 --precision amp-fp16 --autocast-off h.0.attn");
    CHECK(contains(off.out, "autocast off here"));
    CHECK(!contains(o.out, "autocast off here"));
    // Its backward multiplies gradients in E5M2 by weights and activations in E4M3.
    const Outcome fp8 = train("--explain --model mlp --precision fp8-delayed");
    CHECK(contains(fp8.out, "from h.1.linear.grad:e5m2 e5m2 64x128\n      from h.1.weight:e4m3 e4m3 128x128\n"));
    CHECK(!contains(fp8.out, "tensor cores: no"));
    const Outcome int4 = train("--explain --model mlp --width 40 --precision int4"); // codes less zero points: 5 bits
    CHECK(contains(int4.out, "tensor cores: Turing and later; n=40, k=40 no multiple of 16"));
    int fp8_products = 0;
    for (const std::string& line : lines_of(fp8.out))
        fp8_products += contains(line, "cores: Ada, Hopper, Blackwell;") ? 1 : 0;
    CHECK(fp8_products == 5); // two of forward, three of backward: the network's input has no gradient
}

TEST_CASE("the memory of a run, beside the published figures") {
    // FP32 with Adam: weight, gradient, m and v with 4 bytes each. FP16 with FP32 master weights: 2 + 4 + 4 + 4 and a
    // gradient, of 4 bytes or of 2.
    struct Row {
        const char *precision, *kept, *computed;
    };
    for (const Row& row : {Row{"fp32", "16", "16"}, Row{"master-bf16", "18", "16"}, Row{"pure-bf16", "8", "8"}}) {
        const Outcome o = train(fmt::format("--memory --model mlp --precision {}", row.precision));
        REQUIRE(o.code == 0);
        CAPTURE(o.out);
        std::map<std::string, std::string> last_cells;
        for (const std::string& line : lines_of(o.out))
            for (const char* name : {"without activations", "with gradients as computed"})
                if (line.starts_with(name)) last_cells[name] = line.substr(line.rfind(' ') + 1);
        CHECK(last_cells["without activations"] == row.kept);
        CHECK(last_cells["with gradients as computed"] == row.computed);
    }
}

TEST_CASE("a run folder holds the run, and amp-histogram reads it") {
    const Scratch scratch;
    const std::string folder = (scratch / "runs").string();
    const Outcome o = train("--precision fp32,amp-fp16 --steps 21 --record-every 10 --record-state --record " + folder);
    REQUIRE(o.code == 0);
    const Json run = Json::parse(read_file(folder + "/amp-fp16/run.json"));
    CHECK(run["schema_version"] == 2);
    CHECK(run["precision"]["name"] == "amp-fp16");
    CHECK(run["loss_scaler"]["name"] == "torch");
    CHECK(run["parameters"]["wte.weight"] == Json({33, 64}));
    const auto metrics = lines_of(read_file(folder + "/amp-fp16/metrics.jsonl"));
    REQUIRE(metrics.size() == 21);
    const Json last = Json::parse(metrics.back());
    CHECK(last["step"] == 20);
    CHECK(last["scale"] == 65536);
    for (const std::string step : {"000000", "000010", "000020"})
        for (const std::string part : {"gradients", "state"})
            CHECK(std::filesystem::exists(fmt::format("{}/amp-fp16/{}/step_{}.safetensors", folder, part, step)));
    const Outcome histogram = run_command(AMP_HISTOGRAM " --json - " + folder + "/amp-fp16");
    CAPTURE(histogram.err);
    REQUIRE(histogram.code == 0);
    // One line for each tensor and recorded step, whose total is the number of elements.
    const auto lines = lines_of(read_file(folder + "/amp-fp16/histograms.jsonl"));
    REQUIRE(!lines.empty());
    CHECK(lines.size() % 3 == 0);
    for (const std::string& line : lines) {
        const Json h = Json::parse(line);
        std::uint64_t count =
            h["zero"].get<std::uint64_t>() + h["nan"].get<std::uint64_t>() + h["inf"].get<std::uint64_t>();
        for (const auto& row : h["rows"])
            for (const auto& n : row) count += n.get<std::uint64_t>();
        CHECK(count == h["count"]);
    }
}

std::string first_word(const std::string& line, std::size_t from) {
    return line.substr(from, line.find_first_of(" ;", from) - from);
}

/// A precision in which all tensors of products have that format.
std::string all_in(const std::string& name) {
    const std::string f = name == "any" || name == "tf32" ? "fp32" : name;
    return fmt::format("--precision fp32,weights={0},activations={0},gradients={0}", f);
}

TEST_CASE("every name of the lists and every option trains") {
    const Outcome list = train("--list");
    REQUIRE(list.code == 0);
    std::string section;
    std::size_t names = 0;
    for (const std::string& line : lines_of(list.out)) {
        if (!line.starts_with(' ')) {
            section = line;
            continue;
        }
        if (line.starts_with("   ")) continue; // the rest of a long line
        const std::string name = line.substr(2, line.find_first_of(" ,", 2) - 2);
        const std::size_t meaning = line.find_first_not_of(' ', 2 + name.size());
        const std::size_t named = section.find("(--"); // the heading names the option
        const std::string replicas =
            "--precision fp32 --replicas 2 --" +
            (named == std::string::npos ? "" : section.substr(named + 3, section.find(" NAME)") - named - 3));
        const std::string option = section == "Precisions:"                 ? "--precision "
                                   : section == "Models:"                   ? "--model "
                                   : section == "Optimizers:"               ? "--precision amp-fp16 --optimizer "
                                   : section == "Loss scalers:"             ? "--precision amp-fp16 --loss-scale "
                                   : section.starts_with("Blocks of")       ? replicas + "all-reduce-format "
                                   : section.starts_with("Scaling recipes") ? "--precision fp32,scaling="
                                   : section == "Accumulators:" ? all_in(first_word(line, meaning)) + " --accumulate "
                                                                : replicas + " ";
        const Outcome o = train("--steps 2 --batch 8 " + option + name);
        CHECK_MESSAGE(o.code == 0, section, " ", name, ": ", o.err);
        ++names;
    }
    CHECK(names > 30);
    for (const char* options :
         {"--norm rms --activation gelu --dropout 0.1 --depth 1 --heads 2 --autocast-policy cpu --norm-eps 0.001",
          "--model cnn --activation tanh --depth 3", "--model resnet --norm-groups 2 --activation sigmoid",
          "--model llama --kv-heads 1 --hidden 24 --tied --fused-projections --rope-theta 9 --text alice --context 16",
          "--optimizer sgd --momentum 0.9 --nesterov --weight-decay 0.01", "--optimizer adam --contract --eps 1e-6",
          "--micro-batches 2 --replicas 3 --all-reduce tree --all-reduce-format bf16 --divide after --clip 1",
          "--backward-under-autocast --no-weight-cache --autocast-off head", "--clip 1 --clip-before-unscale",
          "--loss-scale deepspeed --unscale-late --growth-interval 1 --hysteresis 1", "--warmup 3 --loss-weight 0.5",
          "--modulus 5 --beta1 0.5 --beta2 0.9 --growth-factor 4 --backoff-factor 0.25 --init-scale 8"}) {
        const Outcome o = train("--steps 2 --batch 8 --precision fp32,amp-fp16 " + std::string(options));
        CHECK_MESSAGE(o.code == 0, options, ": ", o.err);
    }
}

TEST_CASE("a trained network as it is served") {
    const Scratch scratch;
    const std::string runs = (scratch / "runs").string(), run = runs + "/amp-bf16";
    const Json trained =
        train.json("--precision amp-bf16 --steps 60 --modulus 7 --checkpoint-every 60 --record " + runs);
    const auto served = [&](const std::string& options) {
        const Outcome o = train("--evaluate " + run + " --modulus 7 --json - " + options);
        REQUIRE_MESSAGE(o.code == 0, o.err);
        return Json::parse(o.out)["served"];
    };
    const Json rows = served("--weights-as e4m3 --activations-as e4m3:tensor --kv-cache e5m2:token");
    REQUIRE(rows.size() == 5);
    CHECK(rows[0]["loss"] == trained["runs"][0]["validation_loss"]);
    CHECK(rows[0]["accuracy"] == trained["runs"][0]["accuracy"]);
    CHECK(rows[0]["kv_bytes_per_token"] == 512);                 // two layers, keys and values, 64 numbers of two bytes
    CHECK(rows[3]["kv_bytes_per_token"] == 256 + 2 * 2 * 4 * 4); // and a scale for each of four heads
    CHECK(rows[1]["weight_bytes"] < 0.6 * rows[0]["weight_bytes"].get<double>());
    for (const Json& row : rows) {
        CHECK(row["loss"].get<double>() == doctest::Approx(rows[0]["loss"].get<double>()).epsilon(0.05));
        if (row["narrow"] != "as trained") CHECK(row["loss"] != rows[0]["loss"]);
    }
    // Numbers below 2^-17 are zero in E5M2 without a scale; the coarser the format, the further off.
    CHECK(served("--kv-cache e5m2:one")[1]["loss"] != served("--kv-cache e5m2")[1]["loss"]);
    for (const std::string& wrong : {"--evaluate " + run, std::string("--kv-cache e4m3"),
                                     "--kv-cache e4m3:channel --evaluate " + run, "--kv-cache fp16 --evaluate " + run,
                                     "--weights-as x --evaluate " + run, "--weights-as mxfp8 --evaluate " + run})
        CHECK(train(wrong).code == 2);
    for (const std::string& wrong : {"--kv-cache e4m3 --evaluate " + run, // another modulus
                                     "--kv-cache e4m3 --evaluate " + runs})
        CHECK(train(wrong).code == 1);
    CHECK(contains(train("--kv-cache e4m3 --evaluate " + run).err, "other data"));
    train.json("--model mlp --precision fp32 --steps 2 --record " + (scratch / "m").string());
    CHECK(contains(train("--weights-as e4m3 --evaluate " + (scratch / "m/fp32").string()).err, "--checkpoint-every"));
    CHECK(contains(train("--kv-cache e4m3 --evaluate " + (scratch / "m/fp32").string()).err, "no cache"));
}

TEST_CASE("one's own data") {
    const Scratch scratch;
    const std::string text = (scratch / "t.txt").string();
    std::string words;
    for (int i = 0; i < 400; ++i) words += "the quick brown fox ";
    write_file(text, words);
    const Json json = train.json("--steps 30 --context 16 --precision fp32 --lr 0.01 --text " + text);
    CHECK(json["runs"][0]["configuration"]["data"]["name"] == "t.txt");
    CHECK(json["runs"][0]["final_loss"].get<double>() < 1.5); // of ln 20 at first
}

TEST_CASE("mistakes cost one line") {
    const Scratch scratch;
    const std::string here = (scratch / ".").string();
    train.check_error("--precision fp17", 2, {"fp17", "amp-fp16", "pure-bf16-kahan"});
    train.check_error("--precision v=fp17", 2, {"fp17", "bf16"});
    train.check_error("--precision w=bf16", 2, {"'w'", "weights, activations"});
    train.check_error("--precision amp-fp16,gradients=fp32", 2, {"autocast decides about gradients"});
    train.check_error("--precision fp32,fp32", 2, {"fp32 is asked for twice"});
    train.check_error("--model rnn", 2, {"rnn", "linear, mlp, cnn, resnet, gpt, llama"});
    train.check_error("--optimizer adagrad", 2, {"adagrad", "adamw"});
    train.check_error("--loss-scale thing", 2, {"thing", "deepspeed"});
    train.check_error("--activation swish", 2, {"swish", "gelu_tanh"});
    train.check_error("--list --json x.json", 2, {"--json has no effect with --list"});
    train.check_error("--resume", 2, {"--record"});
    train.check_error("--model mlp --text x", 2, {"--text is for the models gpt and llama"});
    train.check_error("--width 10 --heads 4", 2, {"--heads: expected a divisor of the width 10, got 4"});
    train.check_error("--precision pure-fp16,scaler=torch", 2, {"GradScaler refuses"});
    train.check_error("--text /no/such/file", 1, {"/no/such/file"});
    write_file(here + "/short.txt", "too short");
    train.check_error("--text " + here + "/short.txt", 1, {"short.txt", "9 bytes", "context of 64"});
    write_file(here + "/bad.npz", "PK\x03\x04 and no more");
    train.check_error("--model mlp --data " + here + "/bad.npz", 1, {"bad.npz"});
    train.check_error("--record " + here + "/short.txt/runs", 1, {"short.txt"});
    train.check_error("--steps 1000000 --json " + here + "/none/x.json", 1, {"none/x.json", "cannot be"});
}

TEST_CASE("an option that can have no effect, or no sense, is wrong usage") {
    const auto wrong = [](const std::string& options, std::initializer_list<std::string_view> parts) {
        const Outcome o = train("--steps 1 --batch 2 " + options);
        CAPTURE(options);
        CAPTURE(o.err);
        CHECK(o.code == 2);
        CHECK(o.out.empty());
        for (const std::string_view part : parts) CHECK(contains(o.err, part));
    };
    for (const char* option : {"--record-state", "--record-every 3", "--checkpoint-every 3", "--resume"})
        wrong(option, {std::string_view(option).substr(0, 5), "requires --record"});
    const Scratch scratch;
    const std::string record = "--record " + (scratch / "x").string();
    wrong(record + " --record-every 0 --record-state", {"--record-state", "--record-every 0"});
    for (const std::string mode : {"--explain", "--memory"}) wrong(mode + " " + record, {"--record", mode});
    wrong("--kv-cache e4m3 --evaluate x", {"--evaluate", "--steps"});
    wrong("--precision amp-bf16 --autocast-off h.0.atn",
          {"autocast-off", "'h.0.atn'", "h.0, ", "h.0.attn, ", ", head"});
    wrong("--precision fp8-current --scaling-off haed", {"scaling-off", "'haed'", ", head"});
    for (const char* number : {"--departure", "--clip", "--loss-weight", "--lr", "--eps", "--weight-decay", "--beta1",
                               "--beta2", "--dropout", "--momentum", "--init-scale", "--growth-factor"})
        for (const char* value : {"nan", "inf", "-1", "1e999", "x", "''"})
            wrong(fmt::format("{}={}", number, value), {number});
    for (const char* number :
         {"--seed", "--batch", "--width", "--depth", "--heads", "--micro-batches", "--replicas", "--warmup",
          "--growth-interval", "--hysteresis", "--context", "--modulus", "--threads", "--statistics-every"})
        for (const char* value : {"-1", "99999999999999999999", "1e3", "0x1p3", "2.5"})
            wrong(fmt::format("{}={}", number, value), {number});
    wrong("--precision fp32,,amp-bf16", {"--precision", "a name is missing in 'fp32,,amp-bf16'"});
    wrong("--precision fp32,", {"--precision", "'fp32,'"});
    wrong("--precision fp32,weights=bf16,v=bf16,weights=bf16", {"weights= is given twice"});
    // What only these runs cannot use is told.
    const Outcome o = train("--steps 1 --batch 2 --precision fp32 --momentum 0.5 --init-scale 8 --autocast-off head");
    CHECK(o.code == 0);
    const std::string begin = "amp-train: warning: ";
    CHECK(lines_of(o.err) == std::vector{begin + "--momentum has no effect: it is for --optimizer sgd or muon",
                                         begin + "--init-scale has no effect: it is for a precision with a loss scaler",
                                         begin + "--autocast-off has no effect: it is for a precision with autocast"});
    // One replica alone sends nothing and keeps everything, but it may compute with weights in another format.
    const std::string alone = "--model mlp --precision fp32 --memory --shard zero1";
    CHECK(train(alone).err == begin + "--shard has no effect: it is for --replicas above 1, or --gather-format\n");
    CHECK(train(alone + " --gather-format bf16").err.empty());
}

TEST_CASE("an existing run is not overwritten, a full disk loses nothing, a resumed run must be the same one") {
    const Scratch scratch;
    const std::string runs =
        "--model mlp --precision fp32 --checkpoint-every 5 --record " + (scratch / "runs").string();
    const std::string metrics = (scratch / "runs/fp32/metrics.jsonl").string();
    REQUIRE(train("--steps 10 " + runs).code == 0);
    const std::string before = read_file(metrics);
    train.check_error("--steps 10 " + runs, 1, {"holds a run already", "--resume"});
    train.check_error("--steps 20 --lr 0.5 --resume " + runs, 1, {"run.json", "/optimizer/lr"});
    train.check_error("--steps 20 --seed 1 --resume " + runs, 1, {"/seed"});
    CHECK(read_file(metrics) == before);
    const std::string limited = "bash -c \"ulimit -f 16; " AMP_TRAIN " --steps 20 --resume " + runs + "\"";
    const Outcome full = run_command(limited);
    CHECK(full.code == 1);
    CHECK(lines_of(full.err).size() == 1);
    CHECK(contains(full.err, "cannot be written"));
    CHECK(read_file(metrics).starts_with(before));
    // More room, and on to more steps than at first; as if nothing had happened.
    const Json resumed = train.json("--steps 20 --resume " + runs);
    const Json whole = train.json("--steps 20 --model mlp --precision fp32");
    CHECK(resumed["runs"][0]["fingerprint"] == whole["runs"][0]["fingerprint"]);
    train.check_error("--steps 15 --resume " + runs, 1, {"at step 20 already", "15"});
}

TEST_CASE("runs that draw random numbers or keep histories have the same bits on any threads and after --resume") {
    const Scratch scratch;
    const std::string options = "--model gpt --width 16 --precision quartet2,nvfp4,mxfp4,fp8-delayed --replicas 2 "
                                "--micro-batches 2 ",
                      runs = "--checkpoint-every 3 --record " + (scratch / "runs").string();
    const auto fingerprints = [](const Json& result) {
        std::vector<std::string> all;
        for (const Json& run : result["runs"]) all.push_back(run["fingerprint"]);
        return all;
    };
    const std::vector<std::string> whole = fingerprints(train.json(options + "--steps 6 --threads 1"));
    CHECK(whole.size() == 4);
    CHECK(fingerprints(train.json(options + "--steps 6 --threads 3")) == whole);
    CHECK(fingerprints(train.json(options + "--steps 3 " + runs)) != whole);
    CHECK(fingerprints(train.json(options + "--steps 6 --resume " + runs)) == whole);
}

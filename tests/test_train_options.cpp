// The options of amp-train: which of them an error names, what they are without being given, and those in a file.
#include "tool.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <sstream>

using namespace amp::test;

namespace {

using Json = nlohmann::json;
const Tool train{AMP_TRAIN};

} // namespace

TEST_CASE("options from a file") {
    const Scratch scratch;
    const std::string file = (scratch / "run.toml").string();
    write_file(file, "model = \"mlp\"\nprecision = [\"fp32\", \"amp-fp16\"]\nsteps = 7\nloss-scale = "
                     "\"constant\"\ninit-scale = 128\n");
    const Json json = train.json("--config " + file);
    CHECK(json["steps"] == 7);
    REQUIRE(json["runs"].size() == 2);
    CHECK(json["runs"][1]["scale"] == 128);
    CHECK(train.json("--steps 3 --config " + file)["steps"] == 3); // the command line wins
    write_file(file, "# nothing\nmodel = mlp # or 'cnn'\nprecision = [\"fp32\", # one\n'amp-fp16',\n] # two\r\n"
                     "nesterov = false\n\n'steps' = 7");
    CHECK(train.json("--config " + file)["runs"].size() == 2);
    write_file(file, std::string(3'000'000, 'a'));
    train.check_error("--config " + file, 2, {"run.toml:1: expected name = value, not 'aaa"});
    CHECK(train("--config " + file).err.size() < 3000);
    train.check_error("--config ''", 2, {"--config needs a value"});
    train.check_error("--config /dev/zero", 1, {"/dev/zero: is a device, not a regular file"});
    CHECK(train("--config " + (scratch / "none.toml").string()).code == 1);
}

TEST_CASE("an error in a file of options names the file, the line, and what is expected there") {
    const Scratch scratch;
    const std::string file = (scratch / "run.toml").string();
    const std::pair<const char*, const char*> cases[] = {
        {"steps = 1\nwidht = 4\n", ":2: unknown option 'widht'"},
        {"steps 1\n", ":1: expected name = value, not 'steps 1'"},
        {"\n# nothing\n\n xx \n", ":4: expected name = value, not 'xx'"},
        {" = 1\n", ":1: expected name = value, not '= 1'"},
        {"model = \"mlp\"\n[part]\nsteps = 1\n", ":2: unknown section '[part]': options stand in lines name = value"},
        {"precision = [\"fp32\",\n\"amp-fp16\"\nsteps = 1\n", ":3: expected , or ] in the list of precision"},
        {"steps = 1\nprecision = [\"fp32\",\n", ":2: the list of precision has no closing ]"},
        {"precision = \"fp32\nsteps = 1\n", ":1: the text of precision has no closing \""},
        {"seed =\n", ":1: expected a value of seed"},
        {"seed = 3 4\n", ":1: expected the end of the line after the value of seed, not '4'"},
        {"seed = 3\nlr = 1\nseed = 4\n", ":3: seed is given more than once; line 1 has it, too"},
        {"seed = [1, 2]\n", ":1: seed: expected one value, not a list"},
        {"precision = []\n", ":1: precision: expected values in the list"},
        {"nesterov = maybe\n", ":1: nesterov: expected true or false, not 'maybe'"},
        {"help = true\n", ":1: help is for the command line, not for a file"},
        {"steps = 1\nseed = abc\n", ":2: seed: expected a whole number from 0"},
        {"steps = 1\nlr = -3\n", ":2: lr: expected a number from 0, not '-3'"},
        {"steps = 1\nrecord-every = 3\n", ":2: record-every requires --record"},
        {"steps = 1\nprecision = \"fp32,fp17\"\n", ":2: precision: unknown precision 'fp17'; known: fp32"},
        {"steps = 1\nmodel = \"rnn\"\n", ":2: model: unknown model 'rnn'; known: linear"},
        {"text = \"\"\n", ":1: text needs a value"},
    };
    for (const auto& [text, says] : cases) {
        write_file(file, text);
        train.check_error("--config " + file, 2, {"amp-train: " + file + says});
    }
    write_file(file, "seed = 3\n"); // what the command line gives is not in the file
    train.check_error("--seed x --config " + file, 2, {"amp-train: --seed: expected"});
    train.check_error("--seed=x --config " + file, 2, {"amp-train: --seed: expected"});
}

TEST_CASE("an error names the option that the user has given, as it is given") {
    const std::pair<const char*, const char*> cases[] = {
        {"--heads 3", "[gpt] expected a --heads that divides --width 64, got 3"},
        {"--model llama --kv-heads 3", "[llama] expected a --kv-heads that divides --heads 4, got 3"},
        {"--model llama --width 12", "an even width, whose pairs rotary positions turn: --width 12 by --heads 4 is 3"},
        {"--growth-factor 0.5", "--growth-factor: expected a number above 1, not '0.5'"},
        {"--backoff-factor 1", "--backoff-factor: expected a number above 0 and below 1, not '1'"},
        {"--init-scale 1e300", "--init-scale: expected a positive number within the scale's type, got 1e+300"},
        {"--optimizer muon --momentum 2", "--momentum: expected a momentum in (0, 1] for Muon"},
        {"--optimizer sgd --nesterov", "--nesterov: expected a momentum above 0 and no dampening"},
        {"--gather-format e4m3", "--gather-format is for sharded optimizers: expected --shard, too"},
        {"--model rnn", "--model: unknown model 'rnn'"},
        {"--optimizer x", "--optimizer: unknown optimizer 'x'"},
        {"--loss-scale x", "--loss-scale: unknown loss scaler 'x'"},
        {"--precision x", "--precision: unknown precision 'x'"},
        {"--precision fp32,scaler=x", "--precision: unknown loss scaler 'x'"},
        {"--accumulate x", "--accumulate: unknown accumulator 'x'"},
        {"--layer head:x", "--layer: layer head:x: unknown format or recipe of a layer 'x'"},
        {"--attention x", "--attention: unknown attention 'x'"},
        {"--activation x", "--activation: unknown activation 'x'"},
        {"--norm x", "--norm: unknown norm 'x'"},
        {"--autocast-policy x", "--autocast-policy: unknown device 'x'"},
        {"--all-reduce x", "--all-reduce: unknown algorithm 'x'"},
        {"--all-reduce-format x", "--all-reduce-format: unknown format 'x'"},
        {"--all-reduce-scaling x", "--all-reduce-scaling: unknown scaling 'x'"},
        {"--divide x", "--divide: unknown division 'x'"},
        {"--shard x", "--shard: unknown sharding 'x'"},
        {"--shard zero1 --gather-format x", "--gather-format: unknown"},
        {"--evaluate x --weights-as x", "--weights-as: unknown format 'x'"},
        {"--evaluate x --against x", "--against: unknown precision 'x'"},
    };
    for (const auto& [arguments, says] : cases) train.check_error(arguments, 2, {"amp-train: ", says});
}

TEST_CASE("help says what an option is that is not given") {
    // These name a file or a folder, or add something of which there is none otherwise.
    const std::set<std::string> none = {"--text",     "--data",   "--accumulate", "--layer",  "--autocast-off",
                                        "--evaluate", "--export", "--against",    "--record", "--json"};
    std::map<std::string, std::string> texts; // of options that take a value
    std::string current;
    for (const std::string& line : lines_of(train("--help").out)) {
        if (line == "Examples:") break;
        if (std::string option, kind; line.starts_with("  -") && std::istringstream(line) >> option >> kind) {
            const bool takes_one = std::ranges::any_of(std::array{"TEXT", "INT", "UINT", "FLOAT"},
                                                       [&](const char* begin) { return kind.starts_with(begin); });
            current = takes_one ? option : "";
        }
        if (!current.empty()) texts[current] += line;
    }
    CHECK(texts.size() > 50);
    for (const auto& each : texts)
        CHECK_MESSAGE(none.contains(each.first) != contains(each.second, "default"), each.first);
    CHECK(contains(texts["--width"], "default 64, of the mlp 128"));
}

TEST_CASE("a norm of 0 to clip at is none, as where no --clip is given") {
    const auto fingerprint = [](const std::string& options) {
        return train.json("--model mlp --width 8 --steps 3 --precision fp32 " + options)["runs"][0]["fingerprint"];
    };
    CHECK(fingerprint("--clip 0") == fingerprint(""));
    CHECK(fingerprint("--clip 0.001") != fingerprint(""));
    const std::string help = train("--help").out;
    CHECK(contains(help, "default 0: no clipping"));
    train.check_error("--clip -1", 2, {"--clip: expected a number from 0, not '-1'"});
}

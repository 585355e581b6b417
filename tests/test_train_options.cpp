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

TEST_CASE("a flag that is false in a file is not given") {
    const Scratch scratch;
    const std::string file = (scratch / "run.toml").string();
    std::string flags;
    for (const std::string& line : lines_of(train("--help").out)) {
        std::string option, after;
        std::istringstream(line) >> option >> after;
        if (!line.starts_with("  --")) continue;
        const bool takes_value = std::ranges::any_of(std::array{"TEXT", "INT", "UINT", "FLOAT"},
                                                     [&](const char* type) { return after.starts_with(type); });
        if (!takes_value && option != "--config" && option != "--version") flags += option.substr(2) + " = false\n";
    }
    for (const char* flag : {"record-state", "record-replicas", "resume", "unscale-late", "tied", "fused-projections",
                             "clip-before-unscale", "no-weight-cache", "list", "explain"})
        CHECK_MESSAGE(contains(flags, flag), flag);
    write_file(file, flags);
    const std::string tiny = "--model linear --batch 2 --steps 1 --precision fp32";
    const Outcome outcome = train(tiny + " --config " + file);
    CHECK(outcome.code == 0);
    CHECK(outcome.err.empty());
    CHECK(outcome.out == train(tiny).out);
}

TEST_CASE("texts and numbers of a file of options are TOML's") {
    const Scratch scratch;
    const std::string file = (scratch / "run.toml").string(), folder = (scratch / "").string();
    const std::string tiny = "model = \"linear\"\nbatch = 2\nprecision = \"\\u0066p32\"\n";
    write_file(file, "\xEF\xBB\xBF" + tiny + "steps = 1\njson = \"" + folder +
                         "\\b\\t\\n\\f\\r\\e\\\"\\\\\\u00e9\\u20AC\\U0001f600\"\n");
    const Outcome written = train("--config " + file);
    CAPTURE(written.err);
    CHECK(written.code == 0);
    CHECK(fs::exists(scratch / "\b\t\n\f\r\x1b\"\\\u00e9\u20AC\U0001f600"));
    write_file(file, tiny + "steps = 1\njson = '" + folder + "\\t'\n");
    CHECK(train("--config " + file).code == 0);
    CHECK(fs::exists(scratch / "\\t"));
    for (const char* steps : {"1_0", "+10", "0xA", "0o12", "0b10_10"}) {
        write_file(file, tiny + "lr = 1_0.5e-1_0\nsteps = " + steps + "\n");
        CHECK_MESSAGE(train.json("--config " + file)["steps"] == 10, steps);
    }
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
        {"seed =\n", ":1: expected a value of seed; see --help"},
        {"seed = 3 4\n", ":1: expected the end of the line after the value of seed, not '4'; see --help"},
        {"seed = 0x1g\n", ":1: seed: expected a whole number from 0"},
        {"seed = 1__0\n", ":1: seed: expected a whole number from 0 to 18446744073709551615, not '1__0'"},
        {"precision = fp32, amp-fp16\n", ":1: expected the end of the line after the value of precision, not "
                                         "'amp-fp16'; several values are a list: precision = [\"...\", \"...\"]"},
        {"text = no such file\n", ":1: expected the end of the line after the value of text, not 'such file'; put a "
                                  "text with spaces in quotes: text = \"...\"; see --help"},
        {"text = \"no such\" file\n",
         ":1: expected the end of the line after the value of text, not 'file'; see --help"},
        {"\ntext = \"\"\"alice\"\"\"\n", ":2: the text of text begins with \"\"\": texts of several lines are not"},
        {"\ntext = '''alice'''\n", ":2: the text of text begins with ''': texts of several lines are not supported"},
        {"steps = 1\njson = true\n", ":2: json: expected a text, not true; if that is one, put it in quotes"},
        {"layer = [\"head:fp32\",\nfalse]\n", ":1: layer: expected a text, not false; if that is one"},
        {"\ndata = {a=1}\n", ":2: expected a text or a number for data, not '{a=1}'"},
        {"\nseed = { a = 1 }\n", ":2: expected a text or a number for seed, not '{ a = 1 }'"},
        {"precision = [[\"fp32\"]]\n", ":1: expected a text or a number for precision, not '[\"fp32\"]]'"},
        {"\ntext = \"C:\\qqq\"\n",
         ":2: the text of text has '\\q', which stands for no character: those that do are \\b"},
        {"text = \"\\ud83d\\ude00\"\n", ":1: the text of text has '\\ud83d', which stands for no character"},
        {"text = \"\\u12\"\n", ":1: the text of text has '\\u12', which stands for no"},
        {"text = \"\\U00110000\"\n", ":1: the text of text has '\\U00110000', which stands for no"},
        {"text = \"\\u0000\"\n", ":1: the text of text has '\\u0000', which stands for no"},
        {"text = \"\\", ":1: the text of text has '\\', which stands for no"},
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
        {"\nheads = 3\n", ":2: heads: expected a divisor of the width 64, got 3"},
        {"model = \"llama\"\nkv-heads = 3\n", ":2: kv-heads: expected a divisor of the 4 heads, got 3"},
        {"model = \"llama\"\nwidth = 12\n", ":2: width: expected 4 heads of an even width, whose pairs"},
        {"model = \"resnet\"\nnorm-groups = 3\n", ":2: norm-groups: expected a divisor of the width 16, got 3"},
        {"\ngather-format = \"e4m3\"\n", ":2: gather-format: it is for sharded optimizers, and shard is none"},
        {"\nlayer = \"head:x\"\n", ":2: layer head:x: unknown format or recipe of a layer 'x'"},
    };
    for (const auto& [text, says] : cases) {
        write_file(file, text);
        train.check_error("--config " + file, 2, {"amp-train: " + file + says});
    }
    const std::string runs = (scratch / "runs").string(); // an error that comes after the options are read
    REQUIRE(train("--model linear --batch 2 --steps 1 --checkpoint-every 1 --precision fp32 --record " + runs).code ==
            0);
    write_file(file, "evaluate = \"" + runs + "/fp32\"\nattention = \"fused\"\n");
    train.check_error("--config " + file, 2, {"amp-train: " + file + ":2: attention: a linear has none"});
    write_file(file, "seed = 3\n"); // what the command line gives is not in the file
    train.check_error("--seed x --config " + file, 2, {"amp-train: --seed: expected"});
    train.check_error("--seed=x --config " + file, 2, {"amp-train: --seed: expected"});
}

TEST_CASE("an error names the option that the user has given, as it is given") {
    const std::pair<const char*, const char*> cases[] = {
        {"--heads 3", "amp-train: --heads: expected a divisor of the width 64, got 3"},
        {"--model llama --kv-heads 3", "--kv-heads: expected a divisor of the 4 heads, got 3"},
        {"--model llama --width 12",
         "--width: expected 4 heads of an even width, whose pairs rotary positions turn, got 12 / 4 = 3"},
        {"--model resnet --norm-groups 3", "--norm-groups: expected a divisor of the width 16, got 3"},
        {"--growth-factor 0.5", "--growth-factor: expected a number above 1, not '0.5'"},
        {"--backoff-factor 1", "--backoff-factor: expected a number above 0 and below 1, not '1'"},
        {"--init-scale 1e300", "--init-scale: expected a positive number within the scale's type, got 1e+300"},
        {"--optimizer muon --momentum 2", "--momentum: expected a momentum in (0, 1] for Muon"},
        {"--optimizer sgd --nesterov", "--nesterov: expected a momentum above 0; see --help"},
        {"--gather-format e4m3", "--gather-format: it is for sharded optimizers, and shard is none"},
        {"--model rnn", "--model: unknown model 'rnn'"},
        {"--optimizer x", "--optimizer: unknown optimizer 'x'"},
        {"--loss-scale x", "--loss-scale: unknown loss scaler 'x'"},
        {"--precision x", "--precision: unknown precision 'x'"},
        {"--precision fp32,scaler=x", "--precision: unknown loss scaler 'x'"},
        {"--accumulate x", "--accumulate: unknown accumulator 'x'"},
        {"--layer head:x", "amp-train: --layer head:x: unknown format or recipe of a layer 'x'"},
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
    CHECK(!contains(texts["--hysteresis"], "0: any"));
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

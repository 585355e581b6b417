// Behaviour that all tools share, checked for each tool in the list: files named twice, options without effect,
// meaningless numbers and names, names that hide something.
#include "surface.h"

#include <set>
#include <sstream>
#include <utility>

using namespace amp;
using namespace amp::test;

namespace {

struct Writer {
    std::string tool, before; ///< arguments in front of the input
    std::string input;
    std::vector<std::string> outputs;
};

/// The tools that write files; the others print only.
std::vector<Writer> writers() {
    return {{"amp-format", "convert --to fp32", "g_0.npy", {""}},
            {"amp-histogram", "", "g_0.npy", {"--json", "--csv", "--svg", "--html"}},
            {"amp-train", "--model mlp --steps 1 --precision fp32 --data", "g_0.npy", {"--json"}},
            {"amp-loss-scale", "", "log.csv", {"--json", "--svg"}},
            {"amp-diff", "g_1.npy", "g_0.npy", {"--json", "--svg"}},
            {"amp-adam", "", "g_0.npy", {"--json", "--svg"}},
            {"amp-report", "", "g_0.npy", {"--json", "--html", "--markdown"}}};
}

/// The contents of all files of a folder.
std::map<std::string, std::string> contents(const fs::path& folder) {
    std::map<std::string, std::string> files;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder))
        files[entry.path().filename()] = entry.is_regular_file() ? read_file(entry.path()) : "";
    return files;
}

} // namespace

TEST_CASE("an input is no output") {
    const Inputs inputs;
    fs::create_symlink(inputs.at("g_0.npy"), inputs.at("link.npy"));
    fs::create_symlink(inputs.at("log.csv"), inputs.at("link.csv"));
    const auto before = contents(inputs.at(""));
    std::set<std::string> written = {"amp-crosscheck"};
    for (const Writer& w : writers()) {
        written.insert(w.tool);
        const Tool tool{"cd " + inputs.at("") + " && " + path_of(w.tool)};
        const std::string link = "link" + fs::path(w.input).extension().string();
        for (const std::string& output : w.outputs)
            for (const std::string& name : {w.input, "./" + w.input, inputs.at(w.input), link})
                tool.check_error(w.before + " " + w.input + " " + output + " " + name, 2,
                                 {name + "' is an input, which would be overwritten"});
        if (w.input == "g_0.npy" && w.tool != "amp-format" && w.tool != "amp-train")
            for (const std::string& output : w.outputs)
                tool.check_error(w.before + " . " + output + " g_0.npy", 2, {"g_0.npy' is an input"});
    }
    CHECK(contents(inputs.at("")) == before);
    for (const std::string& tool : tools()) CHECK_MESSAGE(written.contains(tool), tool);
}

TEST_CASE("what a run folder holds, or will, is no output") {
    const Inputs inputs;
    const std::string into = "cd " + inputs.at("") + " && ";
    const Tool train{into + path_of("amp-train") + " --model mlp --width 4 --steps 1 --precision fp32 --record runs"},
        report{into + path_of("amp-report") + " --keep runs"};
    const auto check = [&] {
        for (const char* path : {"runs", "runs/fp32/metrics.jsonl", "./runs/fp32/run.json", "runs/../runs/result.json",
                                 "runs/fp32/checkpoints/step_000001.safetensors"})
            for (const Tool& tool : {train, report})
                tool.check_error(std::string("--json ") + path, 2, {path + std::string("' is what --")});
        Tool{into + path_of("amp-train")}.check_error("--model mlp --record runs/deep --json runs", 2,
                                                      {"'runs' is what --record writes"});
    };
    fs::create_symlink("nowhere", inputs.at("gone"));
    Tool{into + path_of("amp-train")}.check_error("--model mlp --steps 1 --record gone", 1,
                                                  {"gone: is a link to nothing"});
    check(); // while there is no file yet
    REQUIRE(train("--json runs.json").code == 0);
    const std::string log = read_file(inputs.at("runs/fp32/metrics.jsonl"));
    check();
    fs::create_directory_symlink("runs", inputs.at("link"));
    train.check_error("--json link/fp32/metrics.jsonl", 2, {"is what --record writes"});
    CHECK(read_file(inputs.at("runs/fp32/metrics.jsonl")) == log);
}

TEST_CASE("two reports are two files") {
    const Inputs inputs;
    fs::create_directory(inputs.at("folder"));
    fs::create_directory_symlink(inputs.at("folder"), inputs.at("link"));
    fs::create_symlink("x", inputs.at("to_x"));
    const auto before = contents(inputs.at(""));
    for (const Writer& w : writers())
        for (std::size_t i = 1; i < w.outputs.size(); ++i) {
            const Tool tool{"cd " + inputs.at("") + " && " + path_of(w.tool)};
            const std::string first = w.before + " " + w.input + " " + w.outputs[0], second = " " + w.outputs[i] + " ";
            for (const auto& [a, b] : {std::pair<std::string, std::string>{"x", "x"},
                                       {"x", "./x"},
                                       {inputs.at("x"), "x"},
                                       {"x", "to_x"},
                                       {"folder/x", "link/x"}})
                tool.check_error(first + " " + a + second + b, 2, {"both name the file", w.outputs[0], w.outputs[i]});
            for (const auto& [a, b] : {std::pair<std::string, std::string>{"-", "-"}, {"-", "/dev/stdout"}})
                tool.check_error(first + " " + a + second + b, 2, {"only one of", "can be standard output"});
            CHECK(tool(first + " /dev/null" + second + "/dev/null").code == 0);
        }
    CHECK(contents(inputs.at("")) == before);
}

TEST_CASE("names of standard output are '-', and what is no file stays what it is") {
    const Inputs inputs;
    REQUIRE(::mkfifo(inputs.at("pipe.npy").c_str(), 0600) == 0);
    for (const Writer& w : writers()) {
        const Tool tool{"cd " + inputs.at("") + " && " + path_of(w.tool)};
        if (w.tool == "amp-train" || w.tool == "amp-format") continue;
        for (const std::string& output : w.outputs) {
            const std::string command = w.before + " " + w.input + " " + output + " ";
            const Outcome printed = tool(command + "-");
            CHECK(printed.code == 0);
            for (const std::string name : {"/dev/stdout", "/proc/self/fd/1"}) // some reports contain the command
                CHECK(lines_of(tool(command + name).out).size() == lines_of(printed.out).size());
            tool.check_error(command + "no/such/folder", 1, {"no/such/folder: cannot be written"});
        }
    }
    const Tool format{path_of("amp-format")};
    format.check_error("convert --to fp16 " + inputs.at("g_0.npy") + " " + inputs.at("pipe.npy"), 1,
                       {"pipe.npy: cannot be written: a pipe or a device"});
    CHECK(fs::is_fifo(inputs.at("pipe.npy")));
    REQUIRE(::mkfifo(inputs.at("pipe").c_str(), 0600) == 0);
    for (const std::string& path : {inputs.at("pipe"), std::string("/dev/null")}) // whatever their extension is
        format.check_error("convert --to fp16 " + inputs.at("g_0.npy") + " " + path, 1,
                           {path + ": cannot be written: a pipe or a device"});
    format.check_error("convert --to fp16 " + inputs.at("g_0.npy") + " -", 2, {"OUT: a tensor file cannot go to"});
}

TEST_CASE("options that can have no effect, and values that mean nothing") {
    const Inputs inputs;
    const std::string one = inputs.at("g_0.npy"), two = one + " " + inputs.at("g_1.npy"), log = inputs.at("log.csv");
    const std::map<std::string, std::vector<std::pair<std::string, std::string>>> refused = {
        {"amp-format",
         {{"--rounding up", "--rounding needs a number"},
          {"e4m3 --flush-subnormals", "--flush-subnormals needs a number"},
          {"--profile nvidia 1", "unknown value 'nvidia'; known: ieee, "},
          {"--json convert a.npy b.npy --to fp16", "--json goes without a command"},
          {"e4m3 eval f16_add", "what goes without a command"},
          {"vectors fp16 convert", "amp-format: --to: expected the format of the result"},
          {"vectors fp16 dot", "amp-format: --accumulate: expected a row of the table of accumulators"},
          {"eval f16_add --exact --notexact", "contradict each other"},
          {"convert a.npy b.npy --to fp16 --seed 3", "--seed changes nothing"},
          {"convert a.npy b.npy --to fp16 --rounding stochastic --seed=-1", "--seed: expected a whole number from 0"},
          {"convert a.npy b.npy --to fp17", "unknown format 'fp17'; known: fp32, "}}},
        {"amp-histogram",
         {{"--json ''", "--json needs a value"},
          {"--tensor ''", "--tensor needs a value"},
          {"''", "PATH needs a value"},
          {"--step 5:3", "no step is in '5:3'"},
          {"--limit nan", "--limit: expected a number above 0, at most 1, not 'nan'"},
          {"--limit 0", "--limit: expected a number above 0"},
          {"--limit 1.5", "--limit: expected"},
          {"--margin 99999999999", "--margin: expected a whole number from 0 to 200"},
          {"--worst 1e3", "--worst: expected a whole number"},
          {"--block 0x10", "--block: expected a whole number"},
          {"--threads=-1", "--threads: expected a whole number"},
          {"--threads 4097", "--threads: expected a whole number"},
          {"--by colour", "unknown grouping 'colour'; known: tensor, layer, pattern, "},
          {"--gate 'fp16.underflow<1.5'", "a share of at most 1 or 100%"},
          {"--error=no", "--error takes no value"}}},
        {"amp-crosscheck",
         {{"devices --json", "unknown option '--json'"},
          {"run --device gpu", "'gpu' is neither the number of a device"},
          {"run --only ops,colours", "unknown value 'colours'; known: conversions, "},
          {"run --only ops --steps 3", "--steps changes nothing without"},
          {"run --device host --record x", "--record needs a device"},
          {"run --steps nan", "--steps: expected a whole number from 1"},
          {"vectors no-such-row a.npz", "no-such-row"},
          {"vectors ampere-fp16 a.npz --b bf16", "takes fp16, not bf16"}}},
        {"amp-loss-scale",
         {{log + " --limit nan", "--limit: expected"},
          {log + " --scaler best", "unknown loss scaler 'best'; known: torch, "},
          {log + " --scaler torch,init=nan", "scale 'nan'"},
          {log + " --scaler torch,init=2,init=4", "init is given twice"},
          {log + " --scaler constant,interval=5", "interval changes nothing"},
          {log + " --amax x --scale x", "the column 'x' cannot be two things"},
          {one + " --amax x", "--amax changes nothing: it is for logs"},
          {one + " --recorded-under torch", "--recorded-under changes nothing"},
          {log + " --format e8m0", "holds scales"}}},
        {"amp-diff",
         {{two + " --gate 'max-ulps<inf'", "expected a limit"},
          {two + " --gate 'max-ulps<nan'", "expected a limit"},
          {two + " --gate 'colour<1'", "unknown figure 'colour'; known: differ, "},
          {two + " --gate 'differ<150%'", "a share of at most 1 or 100%"},
          {one + ".safetensors x.pt --dtype f32", "--dtype changes nothing"},
          {one + ".safetensors x.pt --as bf16", "--as changes nothing"},
          {two + " --a-scale nan", "scale 'nan'"},
          {two + " --worst=-1", "--worst: expected a whole number"}}},
        {"amp-adam",
         {{one + " --eps nan", "--eps: expected a number from 0 to 1"},
          {one + " --eps 1e-8,2", "--eps: expected a number from 0 to 1, not '2'"},
          {one + " --at nan", "--at: expected"},
          {one + " --lr nan", "--lr: expected a number above 0"},
          {one + " --lr=-1", "--lr: expected a number above 0"},
          {one + " --lr inf", "--lr: expected a number above 0"},
          {one + " --beta1 1", "--beta1: expected a number from 0 and below 1"},
          {one + " --step=-1", "--step: expected a whole number"},
          {one + " --step 99999999999999999999", "--step: expected a whole number"},
          {one + " --assume-steps 0", "--assume-steps: expected a whole number from 1"},
          {one + " --optimizer best", "unknown optimizer 'best'; known: sgd, "},
          {one + " --state fp99", "unknown format 'fp99'"}}},
        {"amp-report",
         {{one + " --keep x", "--keep is for the runs of the standard comparison"},
          {one + " --seeds 3", "--comparison, --seeds and --steps are for what amp-report trains"},
          {one + " --collectives --worst 3", "--worst has no effect with --collectives"},
          {one + " --collectives --alpha 0.5", "--alpha has no effect with --collectives"},
          {one + " --collectives --seeds 3", "--comparison, --seeds and --steps are for what amp-report trains"},
          {one + " --alpha 0", "--alpha: expected a number from 1e-06 to 0.5"},
          {one + " --loss-margin nan", "--loss-margin: expected a number from 0"},
          {one + " --limit nan", "--limit: expected"},
          {one + " --html ''", "--html needs a value"}}},
        {"amp-train", {{"--json ''", "--json needs a value"}}}};
    for (const std::string& tool : tools()) {
        REQUIRE_MESSAGE(refused.contains(tool), tool);
        for (const auto& [arguments, says] : refused.at(tool)) Tool{path_of(tool)}.check_error(arguments, 2, {says});
    }
    for (const Writer& w : writers()) // CLI11 would take the next word as the value of "--json="
        for (const std::string& output : w.outputs)
            if (output.starts_with("--"))
                Tool{path_of(w.tool)}.check_error(w.before + " " + w.input + " " + output + "= x", 2,
                                                  {output + " needs a value"});
    CHECK(Tool{path_of("amp-histogram")}("--worst 010 " + one).out ==
          Tool{path_of("amp-histogram")}("--worst 10 " + one).out); // no octal numbers
}

TEST_CASE("help says where a tool's option is not as in other tools, and what it does") {
    const struct {
        const char *tool, *arguments, *says;
    } cases[] = {
        {"amp-format", "--help",
         "unlike other tools' --json it takes no file name, because the word after it may be a"},
        {"amp-crosscheck", "run --help", "it takes no file name, because --output names the folder of the file"},
        {"amp-crosscheck", "vectors --help", "it takes no file name, because the word after it may be a row or a FILE"},
        {"amp-adam", "--help", "Examine the last recorded step up to this one; a warning says which"}};
    for (const auto& c : cases) {
        std::istringstream words(Tool{path_of(c.tool)}(c.arguments).out);
        std::string help;
        for (std::string word; words >> word;) help += word + " ";
        CHECK_MESSAGE(contains(help, c.says), c.tool);
    }
}

TEST_CASE("names hide nothing, in any output") {
    const Inputs inputs;
    const std::string hidden = "\u202e\u2066\u200f\u061c\u200b\x1b\u0085\"\x01"
                               "0";
    const std::string folder = inputs.at("=1+2" + hidden);
    fs::create_directory(folder);
    for (const char* name : {"g_0.npy", "g_1.npy"}) fs::copy_file(inputs.at(name), folder + "/@w" + hidden + name);
    fs::copy_file(inputs.at("log.csv"), folder + "/log" + hidden + ".csv");
    write_file(folder + "/bad" + hidden + ".safetensors", "no tensors");
    for (const Writer& w : writers()) {
        if (w.tool == "amp-train" || w.tool == "amp-format") continue;
        const std::string paths = "'" + folder + (w.tool == "amp-loss-scale" ? "/log" + hidden + ".csv'" : "'") +
                                  (w.tool == "amp-diff" ? " '" + folder + "'" : "");
        std::vector<std::string> kinds = {""};
        for (const std::string& output : w.outputs) kinds.push_back(output + " -");
        for (const std::string& kind : kinds) {
            const Outcome o = run_command(path_of(w.tool) + " " + paths + " " + kind);
            CAPTURE(w.tool);
            CAPTURE(kind);
            CHECK(o.code <= 1); // one file is damaged
            CHECK(!o.out.empty());
            if (kind == "--json -") CHECK(nlohmann::json::accept(o.out));
            for (const char* character : {"\u202e", "\u2066", "\u200f", "\u061c", "\u200b", "\x1b", "\u0085", "\x01"}) {
                CHECK(!contains(o.out, character));
                CHECK(!contains(o.err, character));
            }
        }
    }
    const Outcome csv = run_command("cd '" + folder + "' && " + path_of("amp-histogram") + " @* --csv -");
    CHECK(csv.code == 0);
    CHECK(contains(csv.out, "\n\"'@w"));
    CHECK(!contains(csv.out, "\n@"));
    CHECK(!contains(csv.out, ",@"));
}

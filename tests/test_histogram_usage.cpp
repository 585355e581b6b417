// What amp-histogram says about options without effect and numbers out of range, what it understands of recipes, blocks
// and roundings, how it prints names that are not UTF-8 or that take two columns a character, and what it says below
// tables of what was only partly recorded.
#include "censored_runs.h"
#include "fuzz/harness.h"
#include "tool.h"

#include <ampscope/sim/base/text.h>
#include <ampscope/sim/findings/histogram_recipe.h>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <regex>

using namespace amp;
using namespace amp::test;
using nlohmann::json;

namespace {

const std::string digits = AMP_SAMPLE "/digits_cnn";

Outcome run(const std::string& arguments) { return run_command(AMP_HISTOGRAM " " + arguments); }

/// A .npy file of one dimension.
std::string npy_of(const std::string& descr, std::size_t count, std::string_view data) {
    const std::string header =
        "{'descr': '" + descr + "', 'fortran_order': False, 'shape': (" + std::to_string(count) + ",), }\n";
    return "\x93NUMPY" + std::string("\x01\x00", 2) + fuzz::little_endian(header.size(), 2) + header +
           std::string(data);
}

const std::string four_floats("\0\0\x80\x3f\0\0\0\0\0\0\0\x33\0\0\x80\x7f", 16); // 1, 0, 2^-25, inf

} // namespace

TEST_CASE("options that can change nothing, or mean nothing, are wrong usage") {
    for (const auto& [arguments, says] : std::vector<std::pair<std::string, std::string>>{
             {"--shape 2x2", "--shape requires --dtype"},
             {"--overflow saturate", "--overflow requires --error"},
             {"--kind weigth",
              "unknown kind 'weigth'; known: weight, weight_gradient, activation, activation_gradient, state, all"},
             {"--merge a.json --dtype f32", "--merge excludes --dtype"},
             {"--merge a.json --as bf16", "--merge excludes --as"},
             {"--merge a.json --recorded-scale 2", "--recorded-scale excludes --merge"}}) {
        const Outcome outcome = run(arguments);
        CAPTURE(outcome.err);
        CHECK(outcome.code == 2);
        CHECK(outcome.err == "amp-histogram: " + says + "; see --help\n");
    }
    CHECK(run("--overflow saturate --error").code == 0);
}

TEST_CASE("--dtype and --as that no file needs are noted, and only those") {
    const Scratch scratch;
    const std::string raw = write_file(scratch / "a.bin", four_floats).string();
    const std::string lost = write_file(scratch / "b.npy", npy_of("<V2", 2, "\x80\x3f\x80\x3f")).string();
    const std::string whole = write_file(scratch / "c.npy", npy_of("<f4", 4, four_floats)).string();
    const auto notes = [](const std::string& arguments) {
        const Outcome outcome = run(arguments + " --csv /dev/null");
        CHECK(outcome.code == 0);
        return outcome.err;
    };
    const auto says = [](const std::string& text, const std::string& what) {
        return lines_of(text).size() == 1 && text.find("warning: " + what + " changes nothing") != std::string::npos;
    };
    CHECK(run(raw).err == "amp-histogram: " + raw +
                              ": unknown kind of file; name it .safetensors, .npy, .npz or .pt, or "
                              "say what it holds with --dtype\n");
    CHECK(notes(raw + " --dtype f32 --shape 2x2").empty());
    CHECK(notes(lost + " --as bf16").empty());
    CHECK(notes(lost + " " + raw + " --as bf16 --dtype f32").empty());
    CHECK(notes(scratch.folder().string() + " --as bf16 --dtype f32").empty());
    CHECK(says(notes(whole + " --dtype f32"), "--dtype"));
    CHECK(says(notes(whole + " --as bf16"), "--as"));
    CHECK(says(notes(raw + " --dtype f32 --as bf16"), "--as"));
    const Outcome wrong = run(lost + " --as e4m3"); // an error, and no remark that --as has no effect
    CHECK(wrong.code == 1);
    CHECK(lines_of(wrong.err).size() == 1);
}

TEST_CASE("numbers out of range are told with the range") {
    for (const std::string wrong : {"-1", "x", "1.5", "99999999999999999999"}) {
        const Outcome outcome = run("--worst=" + wrong);
        CAPTURE(outcome.err);
        CHECK(outcome.code == 2);
        CHECK(outcome.err.find("--worst") != std::string::npos);
        CHECK(lines_of(outcome.err)[0].size() < 110);
    }
    CHECK(run("--worst -1").err.find("--worst: expected a whole number from 0 to 1000000000, not '-1'; see") == 15);
}

TEST_CASE("names that are no UTF-8: every output is valid, and nothing is lost in a merge") {
    const Scratch scratch;
    const std::string npy = npy_of("<f4", 4, four_floats);
    write_file(scratch / "x.npz",
               fuzz::zip_of({{"a\xff.npy", npy}, {"a\xfe.npy", npy}, {"\xe5\xb1\xa4\x1b[2J.npy", npy}}));
    write_file(scratch / "w\xff\xc3(\xf0\x9f.npy", npy);
    const std::string folder = scratch.folder().string(), report = (scratch / "r.json").string();
    const Outcome direct = run(folder + " --error --json -");
    CHECK(direct.code == 0);
    const json parsed = json::parse(direct.out); // throws unless it is UTF-8
    CHECK(parsed["tensors"].size() == 4);
    CHECK(parsed["total"]["count"] == 16);
    write_file(report, direct.out);
    CHECK(run("--merge " + report + " --error --json -").out == direct.out);
    CHECK(run("--merge " + report + " " + report + " --error --json -").out == direct.out);
    for (const char* output : {"--csv -", "--svg -", ""}) {
        const Outcome outcome = run(folder + " " + output);
        CHECK(outcome.code == 0);
        std::string visible = outcome.out;
        std::erase_if(visible, [](char c) { return c == '\n' || c == '\r'; });
        CHECK_MESSAGE(printable(visible) == visible, output);
    }
    write_file(scratch / "bad\xff\x1b.npy", "no array");
    const Outcome bad = run(folder);
    CHECK(bad.code == 1);
    CHECK(bad.err.find("bad\xef\xbf\xbd?.npy: byte 0: not a .npy array") != std::string::npos);
}

TEST_CASE("names in East Asian scripts keep the report within 80 columns") {
    const Scratch scratch;
    std::string name;
    for (int i = 0; i < 30; ++i) name += "重み";
    write_file(scratch / (name + ".npy"), npy_of("<f4", 4, four_floats));
    write_file(scratch / "層.0.bias.npy", npy_of("<f4", 4, four_floats));
    const Outcome outcome = run(scratch.folder().string());
    CHECK(outcome.code == 0);
    CHECK(outcome.out.find("…") != std::string::npos);
    for (const std::string& line : lines_of(outcome.out)) {
        CAPTURE(line);
        CHECK(width(line) <= 80);
    }
}

TEST_CASE("words of a recipe") {
    CHECK(recipe_choice("te-nvfp4,2d,weight").operand(OperandRole::weight)->blocks(false) ==
          BlockScaling{format("e2m1"), 16, 16, ScaleRule::nvfp4});
    CHECK(recipe_choice("te-mxfp8,2d").operand(OperandRole::gradient)->blocks(false) ==
          BlockScaling{format("e4m3"), 32, 32, ScaleRule::mx_te});
    CHECK(recipe_choice("te-mxfp8,column").operand(OperandRole::gradient)->blocks(true) ==
          BlockScaling{format("e4m3"), 32, 1, ScaleRule::mx_te});
    CHECK_FALSE(recipe_choice("te-nvfp4").rotates(OperandRole::input));
    CHECK(recipe_choice("te-nvfp4,column").rotates(OperandRole::input));
    CHECK_FALSE(recipe_choice("torchao-rowwise-gw-hp,column").operand(OperandRole::gradient));
    CHECK(recipe_choice("torchao-rowwise-gw-hp,column").operand(OperandRole::weight)->blocks(true).rows == 0);
    CHECK(recipe_choice("te-mxfp8").role_of(TensorKind::activation) == OperandRole::input);
    CHECK(recipe_choice("te-mxfp8").role_of(TensorKind::weight) == OperandRole::weight);
    CHECK(recipe_choice("te-mxfp8").role_of(TensorKind::activation_gradient) == OperandRole::gradient);
    CHECK(recipe_choice("te-mxfp8").role_of(TensorKind::weight_gradient) == OperandRole::gradient);
    CHECK_FALSE(recipe_choice("te-mxfp8").role_of(TensorKind::state));
    CHECK_THROWS_WITH_AS(recipe_choice("general,upper=line,upper=none"), doctest::Contains("upper= is given twice"),
                         std::invalid_argument);
    CHECK_THROWS_WITH_AS(recipe_choice("te-mxfp8,scale=e5m2"),
                         doctest::Contains("te-mxfp8,scale=e5m2: scale=e5m2: only"), std::invalid_argument);
    CHECK(recipe_choice("te-mxfp8,input").role_of(TensorKind::state) == OperandRole::input);
    CHECK_THROWS_WITH_AS(recipe_choice("te-mxfp9"), doctest::Contains("known: te-delayed, ms-amp"),
                         std::invalid_argument);
    CHECK_THROWS_WITH_AS(recipe_choice("te-mxfp8,rows"), doctest::Contains("known: row, column, 2d"),
                         std::invalid_argument);
    CHECK_THROWS_AS(recipe_choice("te-mxfp8,"), std::invalid_argument);
}

TEST_CASE("pictures name the rounding that is counted, and the one whose zones they draw") {
    const auto picture = [](const std::string& options) { return run(digits + " --svg - " + options).out; };
    CHECK(contains(picture(""), "(nearest-even, scale 1)"));
    CHECK(contains(picture("--rounding toward_zero"), "(toward-zero, scale 1)"));
    for (const std::string rounding : {"down", "up", "stochastic"})
        CHECK(contains(picture("--rounding " + rounding), "(" + rounding + ", drawn as nearest-even, scale 1)"));
    CHECK(contains(run(digits + " --rounding to_odd").out, "zones: to-odd, drawn as nearest-even\n"));
}

TEST_CASE("--block shows the formats of at most 8 bits that were asked for, else the elements of block formats") {
    const auto shown = [](const std::string& options) {
        std::vector<std::string> names;
        const std::vector<std::string> lines = lines_of(run(digits + " --block 32 " + options).out);
        auto line = std::ranges::find_if(lines, [](const std::string& l) { return contains(l, "MX scale a block"); });
        REQUIRE(line != lines.end());
        while (++line != lines.end() && contains(*line, "%")) names.push_back(line->substr(0, line->find(' ')));
        return names;
    };
    using Names = std::vector<std::string>;
    const Names elements = {"e4m3", "e5m2", "e2m3", "e3m2", "e2m1"};
    CHECK(std::ranges::is_permutation(shown(""), elements));
    CHECK(std::ranges::is_permutation(shown("--format fp16,bf16"), elements));
    CHECK(shown("--format e4m3") == Names{"e4m3"});
    CHECK(shown("--format fp16,bf16,fp32,e4m3,e5m2") == Names{"e4m3", "e5m2"});
    const auto in_table = [](const FormatSpec& f) { return f.bits() <= 8 && !f.is_scale() && !f.is_integer(); };
    CHECK(shown("--format all").size() == static_cast<std::size_t>(std::ranges::count_if(formats, in_table)));
}

TEST_CASE("below an unknown answer every table says that it counts what was recorded") {
    const Scratch scratch;
    const std::vector<float> exact = normal_gradients(-27);
    const auto said = [&](const char* name, const std::string& precision, const std::vector<float>& values) {
        const fs::path run_folder = run_with(scratch / name, precision, "fp32", 1, values);
        fs::remove(run_folder / "histograms.jsonl"); // the files will be counted
        save(run_folder / "gradients/step_000002.safetensors", {{"a.weight.grad", values}}, {{"step", "2"}});
        const Outcome outcome = run(run_folder.string() + " --error --block 32 --recipe te-mxfp8");
        CHECK(outcome.code == 0);
        const std::string text = std::regex_replace(outcome.out, std::regex("\\s+"), " "); // sentences are wrapped
        std::size_t sentences = 0;
        for (std::size_t at = 0; (at = text.find("more may have underflowed before", at)) != std::string::npos; ++at)
            ++sentences;
        return sentences;
    };
    CHECK(said("amp", amp_fp16, held(exact, "fp16", 1)) == 5); // of formats, tensors, errors, blocks and the recipe
    CHECK(said("fp32", fp32, exact) == 0);
}

TEST_CASE("gradients whose file states no loss scale are taken as unscaled, and that is said") {
    const Scratch scratch;
    const std::string silent = write_file(scratch / "g.npy", npy_of("<f4", 4, four_floats)).string();
    const std::string report = (scratch / "report.json").string(), said = "no loss scale stated, taken as unscaled";
    const auto words = [](const Outcome& o) { return std::regex_replace(o.out, std::regex("\\s+"), " "); };
    const std::string alone = words(run(silent + " --json " + report));
    CHECK(contains(alone, said));
    CHECK(contains(alone, "no loss scale mends that, unless they still contain one that their files do not state"));
    CHECK(words(run("--merge " + report)) == alone);
    CHECK(contains(words(run(silent + " --recorded-scale 1")), "recorded unscaled"));
    CHECK(!contains(words(run(silent + " --kind weight")), said));
    CHECK(contains(words(run(digits)), "recorded unscaled"));
}

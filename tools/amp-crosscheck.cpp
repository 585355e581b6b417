// amp-crosscheck: models of matrix hardware against what hardware gave.
#include <ampscope/sim/analysis/recorded_products.h>
#include <ampscope/tools/chart/text.h>
#include <ampscope/tools/crosscheck/report.h>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <iostream>

namespace {

using namespace amp;

constexpr const char* examples = R"(Examples:
  amp-crosscheck vectors ampere-bf16 A100_bf16.npz
  amp-crosscheck vectors hopper-wgmma-fp8 H100_e5m2.npz --a e5m2 --b e5m2 --output d_fp32
  amp-crosscheck vectors hopper-fp16 H100_fp16.npz --json

A file of vectors has arrays a and b (cases x k), c (cases), and d_fp32 or d_fp16 (cases): 32-bit words, each the FP32
bits of a number, d = a . b + c as that hardware gave it. amp-train --list prints the rows.
Exit codes: 0 no mismatch, 1 bad input, 2 wrong usage, 3 a mismatch.)";

struct Options {
    RecordedQuestion question;
    std::vector<std::filesystem::path> files;
    bool json = false;
};

int vectors(const Options& options) {
    std::vector<VectorFile> results;
    for (const auto& file : options.files) results.push_back({file, compare_recorded(file, options.question)});
    fmt::print("{}", options.json ? vectors_json(results) : vectors_table(results));
    const auto differs = [](const RecordedComparison& r) { return r.mismatches > 0; };
    const bool any =
        std::ranges::any_of(results, [&](const VectorFile& f) { return std::ranges::any_of(f.outputs, differs); });
    return any ? 3 : 0;
}

} // namespace

int main(int argc, char** argv) {
    Options options;
    CLI::App app("Checks the models of matrix hardware against what hardware gave.", "amp-crosscheck");
    app.footer(examples);
    app.set_version_flag("--version", "amp-crosscheck " AMPSCOPE_VERSION);
    app.require_subcommand(1);
    CLI::App& v = *app.add_subcommand("vectors", "One row of the table of accumulators against recorded dot products");
    v.add_option("row", options.question.accumulator, "Such as hopper-wgmma-fp8")->required();
    v.add_option("file", options.files, ".npz files, or others with the same arrays")->required();
    v.add_option("--a", options.question.a, "Format of a; default: the row's first that holds its numbers");
    v.add_option("--b", options.question.b, "Format of b");
    v.add_option("--output", options.question.output, "d_fp32 or d_fp16; default: all that the file and the row have")
        ->check(CLI::IsMember({"d_fp32", "d_fp16"}));
    v.add_flag("--json", options.json, "Print JSON");
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? 0 : 2;
    }
    try {
        return vectors(options);
    } catch (const std::invalid_argument& error) {
        fmt::print(stderr, "amp-crosscheck: {}\n", printable(error.what()));
        return 2;
    } catch (const std::exception& error) {
        fmt::print(stderr, "amp-crosscheck: {}\n", printable(error.what()));
        return 1;
    }
}

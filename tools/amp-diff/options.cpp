#include <ampscope/tools/amp-diff/options.h>

#include <ampscope/sim/analysis/gate.h>
#include <ampscope/sim/findings/selection.h>
#include <ampscope/tools/command_line.h>

#include <algorithm>
#include <array>

namespace amp::diff_tool {

namespace {

constexpr const char* examples = R"(Examples:
  amp-diff a.safetensors b.safetensors            first difference, tables by tensor, worst elements
  amp-diff runs/fp32 runs/amp-bf16                two runs: where they part, step by step
  amp-diff gpu.npy cpu.npy --gate max-ulps<=1     exit with 3 where they differ by more
  amp-diff fp16.pt fp32.pt --a-scale 65536        fp16.pt still contains the loss scale
  amp-diff a.npz b.npz --tensor weight --worst 0 --json -

Tensors are paired by name and step, or by name where each side has one of it;
two files of one tensor each in any case.
Gates: differ, norm and max-relative < a number or percentage; max-ulps, nan,
inf, sign, zero and missing < or <= a number.
That things differ is no failure: without a gate the exit code is 0.)";

struct Words {
    std::string a, b, tensor, dtype, as, a_scale, b_scale;
    std::vector<std::string> gates;
};

void interpret(const Words& words, DiffToolOptions& options) {
    options.a = words.a;
    options.b = words.b;
    options.tensor = tensor_pattern(words.tensor);
    options.open.dtype_option = "--dtype";
    if (!words.dtype.empty()) options.open.dtype = parse_dtype(words.dtype);
    if (!words.as.empty()) options.open.as = parse_dtype(words.as);
    const auto any_is = [&](bool (*is_one)(const std::filesystem::path&)) {
        std::error_code none; // a folder may hold one
        return std::ranges::any_of(std::array{options.a, options.b}, [&](const std::filesystem::path& path) {
            return std::filesystem::is_directory(path, none) || is_one(path);
        });
    };
    if (options.open.dtype && !any_is([](const std::filesystem::path& path) { return !is_tensor_file(path); }))
        throw std::invalid_argument("--dtype changes nothing: it is for raw files, and neither is one");
    if (options.open.as && !any_is(may_lack_format))
        throw std::invalid_argument(
            "--as changes nothing: it is for .npy and .npz files that lost their number format");
    if (!words.a_scale.empty()) options.a_scale = parse_scale(words.a_scale);
    if (!words.b_scale.empty()) options.b_scale = parse_scale(words.b_scale);
    options.worst = options.rows == 0 ? 100 : options.rows;
    for (const std::string& gate : words.gates) options.gates.push_back(parse_diff_gate(gate));
}

} // namespace

std::optional<int> parse_command_line(int argc, char** argv, DiffToolOptions& options) {
    Words words;
    CommandLine app("amp-diff", "Where two recordings part: first difference, distances in ulps, worst elements.",
                    examples);
    app.reads(app.add_option("A", words.a, "The reference: a file, a folder of files or a run folder"))->required();
    app.reads(app.add_option("B", words.b, "What is compared with A, of the same kinds"))->required();
    app.add_tensor(words.tensor);
    app.add_option("--a-scale", words.a_scale, "Loss scale that the values of A still contain; overrides the file's");
    app.add_option("--b-scale", words.b_scale, "The same for B");
    app.add_worst(options.rows, "Rows in tables of tensors and elements; 0: all tensors; default 10");
    app.add_option("--gate", words.gates, "A condition; exit with 3 unless it holds; repeatable")
        ->allow_extra_args(false);
    app.add_json(options.json);
    app.add_svg(options.svg, "Draw distances over steps and by tensor");
    app.add_html(options.html);
    app.add_threads(options.threads);
    app.add_option("--dtype", words.dtype, "Element type of raw files");
    app.add_option("--as", words.as, "Element type of arrays where NumPy does not know it: bf16, e4m3, e5m2 ...");
    options.command = command_text(argc, argv);
    return app.read(argc, argv, [&] { interpret(words, options); });
}

} // namespace amp::diff_tool

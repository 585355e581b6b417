#include <ampscope/formats/accumulator.h>
#include <ampscope/formats/block.h>
#include <ampscope/sim/base/number.h>
#include <ampscope/sim/findings/selection.h>
#include <ampscope/tools/amp-histogram/options.h>
#include <ampscope/tools/command_line.h>
#include <ampscope/tools/random_options.h>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

namespace amp::histogram_tool {

namespace {

namespace fs = std::filesystem;

constexpr const char* examples = R"(Examples:
  amp-histogram                                   the sample gradients of the project
  amp-histogram runs/gpt/gradients                a folder, every format of the default list
  amp-histogram grads.safetensors --format fp16,e4m3 --scale 0:24 --svg scale.svg
  amp-histogram grads.npz --by layer --worst 5 --json report.json
  amp-histogram run --recipe te-mxfp8 --recipe te-nvfp4,column   by block
  amp-histogram runs/gpt --kind weight,activation --format fp16,e4m3   the forward pass
  amp-histogram checkpoint/step-1000 --kind weight,state   shards of PyTorch's DCP, or a Hugging Face index
  amp-histogram dump.bin --dtype bf16 --shape 4096x4096
  amp-histogram grads.pt --gate 'fp16@2^10.underflow/nonzero<0.5%'   exit 3 if more is lost
  amp-histogram --merge rank0.json rank1.json --json all.json
  amp-histogram checkpoint --kind weight --shard 3/8 --json shard-3.json

A negative LO needs '=': --scale=-8:16.
Gates: FORMAT[@SCALE].CLASS[/all|/nonzero] < or <= LIMIT[%]; an integer without
% and / is a number of elements; a share of no elements does not hold.)";

template <class T>
T parse_whole(const char* option, std::string_view text) {
    if (const std::optional<T> value = number_of<T>(text)) return *value;
    throw std::invalid_argument(fmt::format("{}: '{}' is not a whole number in range", option, text));
}

std::vector<FormatSpec> parse_formats(const std::vector<std::string>& names) {
    std::vector<FormatSpec> out;
    for (const std::string& name : names) {
        if (name == "all") {
            for (const FormatSpec& f : formats)
                if (!f.is_scale() && !f.is_integer()) out.push_back(f);
            continue;
        }
        out.push_back(format(name));
        check_counted(out.back(), "--format", true);
    }
    std::vector<FormatSpec> unique;
    for (const FormatSpec& f : out)
        if (std::ranges::find(unique, f) == unique.end()) unique.push_back(f);
    return unique;
}

/// The formats of at most 8 bits among those asked for; if there are none, the floating-point formats of the
/// elements of block formats.
std::vector<FormatSpec> element_formats(const std::vector<FormatSpec>& asked) {
    std::vector<FormatSpec> elements;
    std::ranges::copy_if(asked, std::back_inserter(elements), [](const FormatSpec& f) { return f.bits() <= 8; });
    if (!elements.empty()) return elements;
    for (const BlockSpec& block : block_formats)
        if (!block.element.is_integer() && std::ranges::find(elements, block.element) == elements.end())
            elements.push_back(block.element);
    return elements;
}

std::vector<double> parse_scales(const std::vector<std::string>& texts) {
    std::vector<double> scales;
    for (const std::string& text : texts) {
        const std::size_t colon = text.find(':');
        if (colon == std::string::npos) {
            scales.push_back(parse_scale(text));
            continue;
        }
        const int low = parse_whole<int>("--scale", std::string_view(text).substr(0, colon));
        const int high = parse_whole<int>("--scale", std::string_view(text).substr(colon + 1));
        if (low > high || low < -1000 || high > 1000)
            throw std::invalid_argument("--scale: '" + text + "': expected LO:HI with -1000 <= LO <= HI <= 1000");
        for (int k = low; k <= high; ++k) scales.push_back(std::ldexp(1.0, k));
    }
    std::ranges::sort(scales);
    scales.erase(std::unique(scales.begin(), scales.end()), scales.end());
    return scales;
}

KindSet parse_kinds(const std::vector<std::string>& names) {
    constexpr std::size_t all = tensor_kind_names.size();
    std::array<std::string_view, all + 1> known = {};
    std::ranges::copy(tensor_kind_names, known.begin());
    known[all] = "all";
    KindSet kinds = {};
    for (const std::string& name : names) {
        const auto kind = parse_name<std::size_t>("kind", known, name);
        kinds |= kind == all ? every_kind : KindSet{static_cast<TensorKind>(kind)};
    }
    return kinds;
}

std::pair<std::int64_t, std::int64_t> parse_steps(std::string_view text) {
    using Limits = std::numeric_limits<std::int64_t>;
    const std::size_t colon = text.find(':');
    if (colon == std::string_view::npos) {
        const auto step = parse_whole<std::int64_t>("--step", text);
        return {step, step};
    }
    const std::string_view a = text.substr(0, colon), b = text.substr(colon + 1);
    const std::int64_t first = a.empty() ? Limits::min() : parse_whole<std::int64_t>("--step", a);
    const std::int64_t last = b.empty() ? Limits::max() : parse_whole<std::int64_t>("--step", b);
    if (first > last) throw std::invalid_argument(fmt::format("--step: no step is in '{}'", text));
    return {first, last};
}

std::pair<std::uint64_t, std::uint64_t> parse_shard(const std::string& text) {
    const std::string_view all = text;
    const std::size_t slash = all.find('/');
    if (slash == std::string_view::npos)
        throw std::invalid_argument("--shard: '" + text + "': expected K/N, as in 1/8");
    const auto number = parse_whole<std::uint64_t>("--shard", all.substr(0, slash)),
               of = parse_whole<std::uint64_t>("--shard", all.substr(slash + 1));
    constexpr std::uint64_t most = 1'000'000;
    if (number < 1 || number > of || of > most)
        throw std::invalid_argument(fmt::format("--shard: '{}': expected K/N with 1 <= K <= N <= {}", text, most));
    return {number, of};
}

std::vector<std::uint64_t> parse_shape(std::string_view text) {
    std::vector<std::uint64_t> shape;
    for (;;) {
        const std::size_t x = std::min(text.find('x'), text.size());
        shape.push_back(parse_whole<std::uint64_t>("--shape", text.substr(0, x)));
        if (x == text.size()) return shape;
        text.remove_prefix(x + 1);
    }
}

/// The sample gradients: where they were installed, seen from this executable; in a wheel those of the labs; else
/// those in the source tree.
fs::path sample_folder() {
    std::error_code none;
    const fs::path root = fs::read_symlink("/proc/self/exe", none).parent_path().parent_path();
    for (const char* place : {"share/ampscope/gradients", "ampscope/labs/notebooks/data/gradients"})
        if (fs::is_directory(root / place, none)) return root / place / "deep_tanh";
    return fs::path(AMPSCOPE_SAMPLE_GRADIENTS) / "deep_tanh";
}

/// The words of the command line, before they mean anything.
struct Words {
    std::vector<std::string> paths, formats, scales, gates, kinds, recipes;
    std::string tensor, step, by = "tensor", rounding = "nearest_even", overflow = "infinity", dtype, shape, as,
                              hardware, shard;
    RandomOptions random;
    bool flush_subnormals = false;
};

void interpret(const CLI::App& app, const Words& words, HistogramToolOptions& options) {
    options.paths.assign(words.paths.begin(), words.paths.end());
    if (options.paths.empty() && !options.merge) {
        options.sample = true;
        options.paths = {sample_folder()};
    }
    if (options.merge && options.paths.empty())
        throw std::invalid_argument("--merge: expected the JSON reports to merge");
    options.formats = parse_formats(words.formats);
    options.elements = element_formats(options.formats);
    if (options.formats.empty()) options.formats.assign(usual_specs.begin(), usual_specs.end());
    options.scales = parse_scales(words.scales);
    options.policy.rounding = parse_name<Rounding>("rounding", rounding_names, words.rounding);
    options.policy.overflow = parse_name<Overflow>("overflow", overflow_names, words.overflow);
    words.random.apply_to(options.policy, app);
    const bool hardware_flushes = !words.hardware.empty() && flushes_subnormals(words.hardware);
    if (words.flush_subnormals || hardware_flushes) options.policy.subnormals = Subnormals::flush_output;
    options.by = parse_name<Grouping>("grouping", grouping_names, words.by);
    if (!words.step.empty()) options.steps = parse_steps(words.step);
    if (!words.kinds.empty()) options.kinds = parse_kinds(words.kinds);
    options.tensor = tensor_pattern(words.tensor);
    options.open.dtype_option = "--dtype";
    if (!words.dtype.empty()) options.open.dtype = parse_dtype(words.dtype);
    if (!words.as.empty()) options.open.as = parse_dtype(words.as);
    if (!words.shard.empty()) options.shard = parse_shard(words.shard);
    if (!words.shape.empty()) options.open.shape = parse_shape(words.shape);
    for (const std::string& gate : words.gates) options.gates.push_back(parse_gate(gate));
    for (const std::string& recipe : words.recipes)
        if (std::ranges::find(options.recipes, recipe, &RecipeChoice::text) == options.recipes.end())
            options.recipes.push_back(recipe_choice(recipe));
    constexpr std::size_t most_blocks = 1000; // --blocks has them all
    options.worst_blocks = options.worst == 0 ? most_blocks : options.worst;
    options.all_blocks = !options.blocks.empty();
}

} // namespace

std::optional<int> parse_command_line(int argc, char** argv, HistogramToolOptions& options) {
    Words words;
    CommandLine app(
        "amp-histogram",
        "Which tensors underflow, turn subnormal or overflow in which number format, and which loss scale saves them.\n"
        "Exact counts of recorded gradients: .safetensors, .npy, .npz, .pt, .pth, raw; files or folders, "
        "and checkpoints of many files.",
        examples);
    app.reads(app.add_option("PATH", words.paths,
                             "Files or folders (recursive; run folders understood); default: sample gradients"));
    app.add_option("--format", words.formats,
                   fmt::format("Formats of the table, eXmY, or all; default {}", fmt::join(usual_formats, ",")))
        ->delimiter(',');
    app.add_option("--scale", words.scales, "Further loss scales: 1,2^10,3.5 or exponents of two LO:HI")
        ->delimiter(',');
    app.add_recorded_scale(options.recorded_scale);
    app.add_tensor(words.tensor);
    app.add_option("--step", words.step, "Only step A, or steps A:B (both included; either may be left out)");
    app.add_option("--kind", words.kinds,
                   "Only weight, weight_gradient, activation, activation_gradient, state, or all")
        ->delimiter(',');
    app.add_option("--by", words.by, "Group by " + either(grouping_names));
    app.add_worst(options.worst);
    std::vector<std::string> names; // of formats that go with the list
    for (const FormatSpec& f : element_formats({})) names.push_back(f.name);
    app.add_option(
           "--block", options.block,
           fmt::format("Also count by blocks of N elements: amax, and what a scale for each block would lose in "
                       "each --format of at most 8 bits (default {})",
                       fmt::join(names, ",")))
        ->transform(whole_number(1, 1 << 20));
    app.add_option("--recipe", words.recipes,
                   "Also what a scaling recipe of amp-train would do, block by block; may be repeated. After its name: "
                   ",row ,column or ,2d (how blocks lie), ,input ,weight or ,gradient (what tensors are)");
    app.writes(app.add_option("--blocks", options.blocks, "Write every block of each --recipe as .npz"));
    app.add_flag("--error", options.error, "Also measure the error of the cast: SQNR, mean and maximum relative error");
    app.add_flag("--merge", options.merge, "The paths are JSON reports of this tool; merge them exactly");
    app.add_option("--shard", words.shard,
                   "Count the K-th of N equal shares of all bytes, K/N; --merge makes one report of the --json of all "
                   "shards");
    app.add_option("--rounding", words.rounding, "How a cast rounds: " + either(rounding_names));
    words.random.add_to(app);
    app.add_option("--overflow", words.overflow, "What an overflow stores, for --error: " + either(overflow_names));
    app.add_flag("--flush-subnormals", words.flush_subnormals, "Subnormal results become zero, and count as underflow");
    app.add_option(
        "--hardware", words.hardware,
        "Matrix hardware that will read the numbers (volta ... cdna2, amx): where it takes subnormal operands "
        "for zero, the same as --flush-subnormals");
    app.add_flag("--alone", options.alone,
                 "Count alone, though mpirun or srun has started this as one of several processes");
    app.add_recommendation(options.recommendation, "recommended");
    app.add_json(options.json);
    app.writes(
        app.add_option("--csv", options.csv, "Write tensor, format, scale, class, count ('-': standard output)"));
    app.add_svg(options.svg, "Draw the histogram and the rates over the scale");
    app.add_html(options.html);
    app.add_option("--gate", words.gates, "A condition; exit with 3 unless it holds; repeatable");
    app.add_threads(options.threads);
    app.add_option("--dtype", words.dtype, "Element type of raw files");
    app.add_option("--shape", words.shape, "Shape of raw files, AxB");
    app.add_option("--as", words.as, "Element type of arrays where NumPy does not know it: bf16, e4m3, e5m2 ...");
    for (const char* list : {"--format", "--scale", "--gate", "--kind", "--recipe"})
        app.get_option(list)->allow_extra_args(false); // a path may follow
    // Options that would change nothing.
    app.get_option("--overflow")->needs(app.get_option("--error"));
    app.get_option("--shape")->needs(app.get_option("--dtype"));
    app.get_option("--blocks")->needs(app.get_option("--recipe"));
    for (const char* of_tensor_files : {"--recorded-scale", "--dtype", "--as", "--blocks"})
        app.get_option("--merge")->excludes(app.get_option(of_tensor_files));
    for (const char* of_the_whole : {"--merge", "--by", "--blocks", "--csv", "--svg", "--html", "--gate"})
        app.get_option("--shard")->excludes(app.get_option(of_the_whole));
    options.command = command_text(argc, argv);
    return app.read(argc, argv, [&] { interpret(app, words, options); });
}

} // namespace amp::histogram_tool

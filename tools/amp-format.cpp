// amp-format: the number formats and single numbers in them, tensor files converted, operations on TestFloat's lines.
// Build: tools/demo; then amp-format --help.
#include <ampscope/tools/chart/terminal.h>
#include <ampscope/tools/chart/text.h>
#include <ampscope/tools/format/convert.h>
#include <ampscope/tools/format/facts.h>
#include <ampscope/tools/format/testfloat.h>
#include <ampscope/tools/process.h>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <iostream>

namespace {

using namespace amp;

constexpr const char* examples = R"(Examples:
  amp-format                          the table of formats
  amp-format e4m3 --values            every fact and all 256 values of a format (e6m9 and the like too)
  amp-format 0.1                      a number in every format: code, value, error, neighbours
  amp-format --format fp16,e5m2 -- -inf           negative numbers after --
  amp-format convert grads.npy out.safetensors --to e4m3 --profile cuda-satfinite
  testfloat_gen f16_mulAdd | amp-format eval f16_mulAdd | testfloat_ver f16_mulAdd

Exit codes: 0 fine, 1 bad input or output, 2 wrong usage.)";

struct Options {
    std::optional<std::string> what;
    std::vector<std::string> formats;
    std::string profile = "ieee", rounding, overflow;
    bool flush = false, values = false, json = false;
    EvalOptions eval;
    std::string eval_rounding = "nearest_even", tininess = "after", to, as, dtype;
    ConvertOptions convert;
};

template <std::size_t N>
CLI::IsMember one_of(const std::array<std::string_view, N>& names) {
    return CLI::IsMember(std::vector<std::string>(names.begin(), names.end()));
}

/// All but stochastic, which needs a tensor to draw its random words for.
CLI::IsMember directed_roundings() {
    return CLI::IsMember(std::vector<std::string>(rounding_names.begin(), rounding_names.end() - 1));
}

void add_policy_options(CLI::App& app, Options& options, bool stochastic) {
    std::vector<std::string> names;
    for (const Profile& p : profiles) names.emplace_back(p.name);
    app.add_option("--profile", options.profile, "Rounding, overflow, subnormal and NaN rules of")
        ->check(CLI::IsMember(names))
        ->capture_default_str();
    app.add_option("--rounding", options.rounding, "Rounding, in place of the profile's")
        ->check(stochastic ? one_of(rounding_names) : directed_roundings());
    app.add_option("--overflow", options.overflow, "What an overflow stores, in place of the profile's")
        ->check(one_of(overflow_names));
    app.add_flag("--flush-subnormals", options.flush, "Subnormal operands and results become zero");
}

Policy policy_of(const Options& options) {
    Policy policy = profile(options.profile).policy;
    if (!options.rounding.empty())
        policy.rounding = parse_name<Rounding>("--rounding", rounding_names, options.rounding);
    if (!options.overflow.empty())
        policy.overflow = parse_name<Overflow>("--overflow", overflow_names, options.overflow);
    if (options.flush) policy.subnormals = Subnormals::flush;
    return policy;
}

bool is_number(const std::string& text) {
    try {
        parse_number(text);
        return true;
    } catch (const std::invalid_argument&) {
        return false;
    }
}

/// A format's name makes a page of facts, anything else must be a number.
std::string describe(const Options& options) {
    using Json = nlohmann::ordered_json;
    if (!options.what) {
        if (options.values) throw std::invalid_argument("--values needs the name of a format");
        if (!options.formats.empty()) throw std::invalid_argument("--format needs a number to show");
        if (!options.json) return format_table(wants_color(stdout));
        Json all = Json::array();
        for (const FormatSpec& f : formats) all.push_back(format_facts(f, false));
        return Json{{"schema_version", 1}, {"formats", all}}.dump(2) + "\n";
    }
    const std::string& what = *options.what;
    std::optional<FormatSpec> named;
    try {
        named = format(what);
    } catch (const std::invalid_argument&) {
        const bool letter = !what.empty() && std::isalpha(static_cast<unsigned char>(what.front())) != 0;
        if (letter && !is_number(what)) throw;
    }
    if (named) {
        if (!options.formats.empty())
            throw std::invalid_argument("--format needs a number to show, and '" + what + "' is a format");
        const Json facts = format_facts(*named, options.values);
        return options.json ? facts.dump(2) + "\n" : facts_text(facts);
    }
    if (options.values) throw std::invalid_argument("--values needs the name of a format, and '" + what + "' is none");
    std::vector<FormatSpec> shown(formats.begin(), formats.end());
    if (!options.formats.empty()) {
        shown.clear();
        for (const std::string& name : options.formats) shown.push_back(format(name));
    }
    const Json facts = number_facts(what, shown, policy_of(options));
    return options.json ? facts.dump(2) + "\n" : number_text(facts);
}

void convert(Options& options) {
    ConvertOptions& c = options.convert;
    c.to = format(options.to);
    c.policy = policy_of(options);
    if (!options.as.empty()) c.open.as = parse_dtype(options.as);
    if (!options.dtype.empty()) c.open.dtype = parse_dtype(options.dtype);
    if (c.open.as && !may_lack_format(c.in))
        throw std::invalid_argument(
            "--as changes nothing: it is for .npy and .npz files that lost their number format");
    if (c.open.dtype && is_tensor_file(c.in))
        throw std::invalid_argument("--dtype changes nothing: it is for raw files");
    const Converted done = [&c] {
        std::error_code none;
        const std::uintmax_t size = std::filesystem::file_size(c.in, none);
        ProgressBar bar(none ? 0 : size);
        return convert_file(c, [&bar](std::uint64_t bytes) { bar.add(bytes); });
    }();
    const std::string what = done.codes ? fmt::format("{}, the codes of {}", info(done.stored).name, c.to.name)
                                        : fmt::format("{} words with values of {}", info(done.stored).name, c.to.name);
    fmt::print("{}: {}, {}, stored as {}{}\n", printable(c.out.string()), plural(done.tensors, "tensor"),
               plural(done.elements, "element"), what,
               done.codes || c.quantize ? "" : "; files have no dtype for its codes");
}

} // namespace

int main(int argc, char** argv) {
    const Process process("amp-format");
    Options options;
    CLI::App app("Number formats: their facts, single numbers, tensor files and operations.", "amp-format");
    app.footer(examples);
    app.set_version_flag("--version", "amp-format " AMPSCOPE_VERSION);
    app.add_option("what", options.what, "A format (e4m3, e6m9 ...) or a number; nothing: the table of formats");
    app.add_option("--format", options.formats, "Formats to show a number in, separated by commas (all)")
        ->delimiter(',')
        ->allow_extra_args(false);
    app.add_flag("--values", options.values, "List every value of a format of at most 8 bits");
    app.add_flag("--json", options.json, "JSON instead of text");
    add_policy_options(app, options, false);

    CLI::App* convert_app = app.add_subcommand(
        "convert", "Convert a tensor file: safetensors, npy, npz, pt or raw to safetensors, npy or raw");
    convert_app->add_option("IN", options.convert.in, "Input file")->required();
    convert_app->add_option("OUT", options.convert.out, "Output file; its extension says its kind")->required();
    convert_app
        ->add_option("--to", options.to,
                     "Format. Files have no dtype for tf32 and eXmY: FP32 words with their values are stored instead")
        ->required();
    convert_app->add_flag("--quantize", options.convert.quantize,
                          "Store FP32 words with values of the format instead of its codes");
    convert_app->add_option("--seed", options.convert.seed, "Of stochastic rounding")->capture_default_str();
    convert_app->add_option("--as", options.as, "What elements are whose dtype NumPy lost: bf16, e4m3 ...");
    convert_app->add_option("--dtype", options.dtype, "Element type of a raw input");
    add_policy_options(*convert_app, options, true);

    CLI::App* eval_app =
        app.add_subcommand("eval", "One operation on lines of hexadecimal operands, as Berkeley TestFloat writes them");
    eval_app->add_option("FUNCTION", options.eval.function, testfloat_functions())->required();
    eval_app->add_option("--rounding", options.eval_rounding, "Rounding")
        ->check(directed_roundings())
        ->capture_default_str();
    eval_app->add_option("--tininess", options.tininess, "Detected before or after rounding")
        ->check(CLI::IsMember({"after", "before"}))
        ->capture_default_str();
    eval_app->add_flag("--exact,!--notexact", options.eval.exact,
                       "roundToInt and conversions to integers raise inexact (or not, the default)");

    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        if (error.get_exit_code() == 0) return app.exit(error); // --help, --version
        // CLI11 takes -inf and -nan for options; -1.5 is safe.
        const bool negative = std::any_of(
            argv + 1, argv + argc, [](const std::string& arg) { return arg.starts_with('-') && is_number(arg); });
        fmt::print(stderr, "amp-format: {}{}\n", error.what(),
                   negative ? " (options first, then --, then a negative number)" : "");
        return 2;
    }
    try {
        if (*eval_app) {
            options.eval.rounding = parse_name<Rounding>("--rounding", rounding_names, options.eval_rounding);
            options.eval.tininess = options.tininess == "before" ? Tininess::before_rounding : Tininess::after_rounding;
            evaluate(options.eval, stdin, stdout);
        } else if (*convert_app) {
            convert(options);
        } else {
            fmt::print("{}", describe(options));
            if (std::fflush(stdout) != 0) throw std::runtime_error("standard output: cannot be written");
        }
    } catch (const std::invalid_argument& error) { // a name that does not exist
        fmt::print(stderr, "amp-format: {}\n", printable(error.what()));
        return 2;
    } catch (const std::exception& error) {
        fmt::print(stderr, "amp-format: {}\n", printable(error.what()));
        return 1;
    }
    return 0;
}

// amp-format: the number formats and single numbers in them, tensor files converted, operations on TestFloat's lines,
// test vectors of operations.
// Build: tools/demo; then amp-format --help.
#include <ampscope/sim/base/text.h>
#include <ampscope/tools/amp-format/convert.h>
#include <ampscope/tools/amp-format/facts.h>
#include <ampscope/tools/amp-format/testfloat.h>
#include <ampscope/tools/amp-format/vectors.h>
#include <ampscope/tools/chart/terminal.h>
#include <ampscope/tools/command_line.h>
#include <ampscope/tools/output.h>
#include <ampscope/tools/random_options.h>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>

namespace {

using namespace amp;
using namespace amp::format_tool;

constexpr const char* examples = R"(Examples:
  amp-format                          the table of formats
  amp-format e4m3 --values            every fact and all 256 values of a format (e6m9 and the like too)
  amp-format 0.1                      a number in every format: code, value, error, neighbours
  amp-format 0.1 --rounding stochastic --random-bits 8    its two values, and the bias of so few bits
  amp-format --format fp16,e5m2 -- -inf           negative numbers after --
  amp-format convert grads.npy out.safetensors --to e4m3 --profile cuda-satfinite
  testfloat_gen f16_mulAdd | amp-format eval f16_mulAdd | testfloat_ver f16_mulAdd
  amp-format vectors e4m3 add --n 100000 > cases.txt      test vectors for hardware)";

constexpr const char* convert_examples = R"(Examples:
  amp-format convert g.npy codes.safetensors --to e4m3 --profile cuda-satfinite
  amp-format convert model.pt values.npy --to e6m9 --quantize
  amp-format convert w.npy half.npy --to bf16 --rounding stochastic --seed 1)";

constexpr const char* eval_examples = R"(Examples:
  echo '3C00 3C00 0001' | amp-format eval f16_mulAdd
  testfloat_gen f16_mulAdd | amp-format eval f16_mulAdd | testfloat_ver f16_mulAdd
  echo 41 | amp-format eval binary8p3_Exp --profile p3109-sat-none      an operation of IEEE P3109)";

struct Options {
    std::optional<std::string> what;
    std::vector<std::string> formats;
    std::string profile = "ieee", rounding, overflow;
    RandomOptions random;
    bool flush = false, values = false, json = false;
    EvalOptions eval;
    std::string tininess = "after", to, as, dtype;
    ConvertOptions convert;
    VectorOptions vectors;
};

/// All but stochastic, which needs random words.
CLI::Validator directed_roundings() { return one_of(std::span(rounding_names).first(rounding_names.size() - 1)); }

void add_policy_options(CLI::App& app, Options& options, bool stochastic) {
    std::vector<std::string_view> names;
    for (const Profile& p : profiles) names.emplace_back(p.name);
    app.add_option("--profile", options.profile, "Whose rules hold for rounding, overflow, subnormals and NaN")
        ->check(one_of(names))
        ->capture_default_str();
    app.add_option("--rounding", options.rounding, "Rounding mode, in place of the profile's")
        ->check(stochastic ? one_of(rounding_names) : directed_roundings());
    if (stochastic) options.random.add_to(app);
    app.add_option("--overflow", options.overflow, "What an overflow stores, in place of the profile's")
        ->check(one_of(overflow_names));
    app.add_flag("--flush-subnormals", options.flush, "Subnormal operands and results become zero");
}

Policy policy_of(const Options& options) {
    Policy policy = profile(options.profile).policy;
    if (!options.rounding.empty()) policy.rounding = parse_name<Rounding>("rounding", rounding_names, options.rounding);
    if (!options.overflow.empty()) policy.overflow = parse_name<Overflow>("overflow", overflow_names, options.overflow);
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

/// What --json prints.
std::string report_text(const nlohmann::ordered_json& facts) {
    nlohmann::ordered_json report = {{"schema_version", 1}};
    report.update(facts);
    return json_text(report, 2);
}

/// A format's name makes a page of facts, anything else must be a number.
std::string describe(const CLI::App& app, const Options& options) {
    using Json = nlohmann::ordered_json;
    const auto only_for_numbers = [&] {
        for (const char* option : {"--format", "--profile", "--rounding", "--random-bits", "--stochastic-variant",
                                   "--overflow", "--flush-subnormals"})
            if (app.count(option) > 0) throw std::invalid_argument(std::string(option) + " needs a number to show");
    };
    if (!options.what) {
        only_for_numbers();
        if (options.values) throw std::invalid_argument("--values needs the name of a format");
        if (!options.json) return terminal_of(format_table(), wants_color(stdout));
        Json all = Json::array();
        for (const FormatSpec& f : formats) all.push_back(facts_json(f, false));
        return report_text(Json::object({{"formats", all}}));
    }
    const std::string& what = *options.what;
    std::optional<FormatSpec> named;
    try {
        named = format_of_codes(what);
    } catch (const std::invalid_argument&) {
        const bool letter = !what.empty() && std::isalpha(static_cast<unsigned char>(what.front())) != 0;
        if (letter && !is_number(what)) throw;
    }
    if (named) {
        only_for_numbers();
        const Json facts = facts_json(*named, options.values);
        return options.json ? report_text(facts) : terminal_of(facts_document(facts), wants_color(stdout));
    }
    if (options.values) throw std::invalid_argument("--values needs the name of a format, and '" + what + "' is none");
    std::vector<FormatSpec> shown;
    for (const std::string& name : options.formats.empty() ? std::vector<std::string>{"all"} : options.formats)
        if (name == "all") shown.insert(shown.end(), formats.begin(), formats.end());
        else shown.push_back(format_of_codes(name));
    Policy policy = policy_of(options);
    options.random.apply_to(policy, app);
    const bool random = policy.rounding == Rounding::stochastic;
    const Json facts = random ? choices_json(what, stochastic_choices(what, shown, policy), policy)
                              : number_json(what, store_number(what, shown, policy));
    if (options.json) return report_text(facts);
    return terminal_of(random ? choices_document(facts) : number_document(facts), wants_color(stdout));
}

/// What the words for a conversion mean. Throws std::invalid_argument.
void interpret_conversion(const CLI::App& command, Options& options) {
    ConvertOptions& c = options.convert;
    c.to = format(options.to);
    c.policy = policy_of(options);
    if (!options.as.empty()) c.open.as = parse_dtype(options.as);
    c.open.dtype_option = "--dtype";
    if (!options.dtype.empty()) c.open.dtype = parse_dtype(options.dtype);
    options.random.apply_to(c.policy, command);
    if (c.policy.rounding != Rounding::stochastic && command.count("--seed") > 0)
        throw std::invalid_argument("--seed changes nothing: it is for --rounding stochastic");
    if (c.out == "-") throw std::invalid_argument("OUT: a tensor file cannot go to standard output");
    if (c.open.as && !may_lack_format(c.in))
        throw std::invalid_argument(
            "--as changes nothing: it is for .npy and .npz files that lost their number format");
    if (c.open.dtype && is_tensor_file(c.in))
        throw std::invalid_argument("--dtype changes nothing: it is for raw files");
}

void convert(const ConvertOptions& c, const Complain& complain) {
    const Converted done = [&c] {
        std::error_code none;
        const std::uintmax_t size = std::filesystem::file_size(c.in, none);
        ProgressBar bar(none ? 0 : size);
        return convert_file(c, [&bar](std::uint64_t bytes) { bar.add(bytes); });
    }();
    const std::string what = done.codes ? fmt::format("{}, the codes of {}", info(done.stored).name, c.to.name)
                                        : fmt::format("{} words with values of {}", info(done.stored).name, c.to.name);
    print_text(fmt::format("{}: {}, {}, stored as {}{}\n", printable(c.out.string()), plural(done.tensors, "tensor"),
                           plural(done.elements, "element"), what,
                           done.codes || c.quantize ? "" : "; files have no dtype for its codes"));
    if (done.lost > 0)
        complain(fmt::format("warning: {}: {} NaN or infinite in {}; amp-histogram says at which scale they fit, "
                             "--overflow saturate stores the largest value instead",
                             c.out.string(), plural(done.lost, "finite element") + (done.lost == 1 ? " is" : " are"),
                             c.to.name));
}

CLI::App& add_convert(CommandLine& app, Options& options) {
    CLI::App& c =
        app.add_command("convert", "Convert a tensor file: safetensors, npy, npz, pt or raw to safetensors, npy or raw",
                        convert_examples);
    app.reads(c.add_option("IN", options.convert.in, "Input file"))->required();
    app.writes(
           c.add_option("OUT", options.convert.out,
                        "Output file: .safetensors, .npy, or .bin or .raw, which hold the numbers of one tensor alone"))
        ->required();
    c.add_option("--to", options.to,
                 "Format. Files have no dtype for tf32 and eXmY: FP32 words with their values are stored instead")
        ->required();
    c.add_flag("--quantize", options.convert.quantize,
               "Store FP32 words with values of the format instead of its codes");
    c.add_option("--seed", options.convert.seed, "Seed of stochastic rounding")
        ->transform(whole_number(0, std::numeric_limits<std::uint64_t>::max()))
        ->capture_default_str();
    c.add_option("--as", options.as, "Element type of arrays where NumPy does not know it: bf16, e4m3, e5m2 ...");
    c.add_option("--dtype", options.dtype, "Element type of a raw input");
    add_policy_options(c, options, true);
    return c;
}

CLI::App& add_eval(CommandLine& app, Options& options) {
    CLI::App& e = app.add_command(
        "eval", "One operation on lines of hexadecimal operands, as Berkeley TestFloat writes them", eval_examples);
    e.add_option("FUNCTION", options.eval.function, testfloat_functions())->required();
    add_policy_options(e, options, false);
    e.add_option("--tininess", options.tininess, "Whether tininess is detected before or after rounding")
        ->check(one_of(std::array<std::string_view, 2>{"after", "before"}))
        ->capture_default_str();
    e.add_flag("--exact,!--notexact", options.eval.exact,
               "roundToInt and conversions to integers raise inexact (or not, the default)");
    return e;
}

int run(int argc, char** argv, const Complain& complain) {
    Options options;
    CommandLine app("amp-format", "Number formats: their facts, single numbers, tensor files and operations.",
                    examples);
    app.add_option("what", options.what,
                   "A format (e4m3, e6m9, binary8p3se ...) or a number; nothing: the table of formats");
    app.add_option("--format", options.formats, "Formats to show a number in, separated by commas; default all")
        ->delimiter(',')
        ->allow_extra_args(false);
    app.add_flag("--values", options.values, "List every value of a format of at most 16 bits");
    app.add_flag("--json", options.json,
                 "Print JSON to standard output; unlike other tools' --json it takes no file name, because the word "
                 "after it may be a format or a number");
    add_policy_options(app, options, true);
    const CLI::App& convert_app = add_convert(app, options);
    const CLI::App& eval_app = add_eval(app, options);
    CLI::App& vectors_app = add_vectors(app, options.vectors);
    add_policy_options(vectors_app, options, false);

    std::string text;
    const auto exit = app.read(argc, argv, [&] {
        for (const CLI::App* command : app.get_subcommands())
            for (const CLI::Option* before : app.get_options())
                if (!before->empty())
                    throw std::invalid_argument(before->get_name() + " goes without a command; " + command->get_name() +
                                                " has options of its own after it");
        if (eval_app) {
            options.eval.policy = policy_of(options);
            options.eval.policy.tininess =
                options.tininess == "before" ? Tininess::before_rounding : Tininess::after_rounding;
            check(options.eval);
        } else if (convert_app) {
            interpret_conversion(convert_app, options);
        } else if (vectors_app) {
            interpret(vectors_app, options.vectors, options.profile, policy_of(options));
        } else {
            text = describe(app, options);
        }
    });
    if (exit) return *exit;
    if (eval_app) evaluate(options.eval);
    else if (convert_app) convert(options.convert, complain);
    else if (vectors_app) write_vectors(options.vectors);
    else print_text(text);
    return 0;
}

} // namespace

int main(int argc, char** argv) {
    const Complain complain{"amp-format"};
    return exit_code(complain, [&] { return run(argc, argv, complain); });
}

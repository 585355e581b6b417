#include <ampscope/tools/amp-format/vectors.h>

#include <ampscope/sim/analysis/conformance/case_file.h>
#include <ampscope/sim/base/text.h>
#include <ampscope/tools/chart/terminal.h>
#include <ampscope/tools/output.h>

#include <fmt/format.h>

#include <algorithm>

namespace amp::format_tool {

namespace {

using conformance::Op;

constexpr const char* vector_examples = R"(Examples:
  amp-format vectors fp16 add --n 100000 > cases.txt
  amp-format vectors e4m3 fma --kinds ties --rounding toward_zero --seed 7 > ties.txt
  amp-format vectors fp32 convert --to e4m3 --overflow saturate_all --out cast.npz
  amp-format vectors binary8p3 Exp --kinds all --profile p3109-sat-finite > exp.txt
  amp-format vectors e4m3 dot --accumulate hopper-wgmma-fp8 --k 64 --b e5m2 --out dot.npz
  amp-format vectors e2m1 dot --accumulate blackwell-mxf4nvf4 --scale e4m3 > nvfp4.txt
  amp-crosscheck vectors cases.txt

A line of the text has the operands of a case, its result and its flags, in
hexadecimal digits as Berkeley TestFloat writes them; lines that begin with #
say what was asked for. The .npz holds the same in one array for each column.
amp-train --list prints the rows of --accumulate.)";

bool is_npz(const std::string& out) { return std::filesystem::path(out).extension() == ".npz"; }

/// An option that the operation does not have is wrong usage: it would change nothing.
void refuse(const CLI::App& command, std::string_view operation, bool has, std::initializer_list<const char*> options) {
    for (const char* option : options)
        if (!has && command.count(option) > 0)
            throw std::invalid_argument(fmt::format("{} changes nothing for {}", option, operation));
}

} // namespace

CLI::App& add_vectors(CommandLine& app, VectorOptions& options) {
    CLI::App& v =
        app.add_command("vectors", "Write test vectors of an operation: operands, result and IEEE flags of many cases",
                        vector_examples);
    v.add_option("FORMAT", options.format, "The operands' format: e4m3, fp16, e6m9 ...")->required();
    v.add_option("OP", options.operation, "The operation: " + conformance::op_names())->required();
    v.add_option("--n", options.question.count,
                 "Number of cases, the same number of each kind; with --kinds all alone, every case unless given")
        ->transform(whole_number(1, 1'000'000'000))
        ->capture_default_str();
    v.add_option("--kinds", options.kinds,
                 "How operands are made, separated by commas: edges (zeros, ends of the range, infinities, NaN, powers "
                 "of two and their neighbours), random (any code), ties (the result lies halfway between two numbers, "
                 "or next to that); of dot products edges, random, cancel (terms that cancel), one_large (one large "
                 "term, many small ones), specials (NaN, infinities, zeros); default: all of these that the operation "
                 "has. And all: every code, or every pair or triple of codes, in order, where they are at most 2^24")
        ->delimiter(',')
        ->allow_extra_args(false)
        ->check(one_of(conformance::kind_names));
    v.add_option("--seed", options.question.seed, "The same seed gives the same cases on every machine")
        ->transform(whole_number(0, std::numeric_limits<std::uint64_t>::max()))
        ->capture_default_str();
    v.add_option("--to", options.to, "Format of the result of convert");
    v.add_option("--accumulate", options.accumulator, "How dot adds up: a row of the table of accumulators");
    v.add_option("--b", options.b, "Format of the second operand of dot; default: that of the first");
    v.add_option("--k", options.question.k, "Number of products of dot")
        ->transform(whole_number(1, 1 << 20))
        ->capture_default_str();
    v.add_option("--scale", options.scale,
                 "Format of the scales of dot's operands: e8m0, e4m3, fp32 ...; default: no scales. A row that applies "
                 "them, as Blackwell's do, has them in its sums; of other rows they multiply the sum of each block");
    v.add_option("--block", options.block, "Number of products that share a scale; default: as the row has them")
        ->transform(whole_number(1, 1 << 20));
    v.add_option("--tininess", options.tininess, "Whether tininess is detected before or after rounding")
        ->check(one_of(std::array<std::string_view, 2>{"after", "before"}))
        ->capture_default_str();
    v.add_flag("--exact,!--notexact", options.question.exact, "roundToInt raises inexact (or not, the default)");
    app.writes(v.add_option("--out", options.out, "File to write: .npz, or else text; default: standard output"));
    return v;
}

void interpret(const CLI::App& command, VectorOptions& options, const std::string& profile, const Policy& policy) {
    conformance::Question& q = options.question;
    q.format = format(options.format);
    q.op = conformance::parse_op(options.operation);
    refuse(command, options.operation, q.op == Op::convert, {"--to"});
    refuse(command, options.operation, q.op == Op::dot, {"--b", "--accumulate", "--k", "--scale", "--block"});
    refuse(command, "dot without --scale", q.op != Op::dot || !options.scale.empty(), {"--block"});
    refuse(command, options.operation, q.op == Op::round_to_int, {"--exact"});
    refuse(command, options.operation, q.op != Op::dot,
           {"--profile", "--rounding", "--overflow", "--flush-subnormals", "--tininess"});
    if (!options.to.empty()) q.to = format(options.to);
    if (!options.b.empty()) q.b = format(options.b);
    if (!options.accumulator.empty()) q.sum = accumulator(options.accumulator);
    if (!options.scale.empty()) {
        const std::uint64_t group = q.sum ? static_cast<std::uint64_t>(q.sum->scales.group) : 0;
        q.scales = {.format = format(options.scale), .block = command.count("--block") > 0 ? options.block : group};
    }
    q.profile = profile;
    q.policy = policy;
    q.policy.tininess = options.tininess == "before" ? Tininess::before_rounding : Tininess::after_rounding;
    for (const std::string& kind : options.kinds) {
        const auto named = parse_name<conformance::Kind>("kind", conformance::kind_names, kind);
        if (std::ranges::count(q.kinds, named) == 0) q.kinds.push_back(named);
    }
    conformance::check(q);
    const bool alone = q.kinds == std::vector{conformance::Kind::all};
    if (alone && command.count("--n") == 0) q.count = conformance::number_of_all(q).value();
}

void write_vectors(const VectorOptions& options) {
    const conformance::Cases cases = conformance::make_cases(options.question, progress_bars());
    if (is_npz(options.out)) write_report(options.out, conformance::npz_of(options.out, cases));
    else write_report(options.out, [&](const TextSink& sink) { conformance::write_text(cases, sink); });
}

} // namespace amp::format_tool

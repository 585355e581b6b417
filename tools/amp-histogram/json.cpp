#include <ampscope/sim/base/text.h>
#include <ampscope/sim/findings/histogram_report.h>
#include <ampscope/tools/amp-histogram/data_report.h>

#include <fmt/format.h>

namespace amp::histogram_tool {

namespace {

const std::vector<std::pair<std::string, std::string>> recipe_definitions = {
    {"recipes",
     "per recipe, over the blocks that share a scale: underflow: non-zero elements that become zero (of_all: as "
     "TransformerEngine divides); saturated: finite elements beyond the largest value after rounding; lost: finite "
     "elements that become NaN or infinite; sqnr_db: 10 log10(signal / noise), signal the sum of x^2, noise that of "
     "squared errors, over finite elements that are not lost; partial_blocks: smaller than asked for"},
    {"recipes.scales",
     "the decode scales of blocks that are not zero; counts: the positive finite ones, of E4M3 by code, "
     "of others by floor(log2 scale); saturated: at an end of what the rule can give; spread: largest / least"},
    {"recipes.log2_amax_over_least", "blocks by floor(log2(largest / smallest non-zero finite magnitude))"},
    {"recipes.worst", "the blocks with the largest noise / signal; row and column count blocks, from 0"}};

} // namespace

std::vector<std::pair<std::string, std::string>> definitions_of(const HistogramFindings& findings,
                                                                const HistogramOptions& options) {
    const bool random = options.policy.rounding == Rounding::stochastic;
    std::vector<std::pair<std::string, std::string>> all = {
        {"magnitude", "|x| of the recorded value divided by the recorded scale"},
        {"rounding", "each element times the scale, exactly, then rounded once to the format; overflow is judged with "
                     "an unbounded exponent"},
        {"zero", "+0 or -0 as recorded"},
        {"underflow", "finite, not zero, and rounds to zero"},
        {"subnormal", "rounds to a non-zero value below the format's smallest normal value"},
        {"normal", "rounds to a normal finite value"},
        {"overflow", "finite, and rounds to more than the format's largest finite value"},
        {"nonzero", "finite and not zero: the denominator of rates unless all is said"},
        {"sum_absolute", "sum of the finite magnitudes; with sum_squares the 1-norm and the square of the 2-norm"},
        {"exponents", "finite non-zero elements by floor(log2(magnitude))"},
        {"window_log2", fmt::format("scales 2^k at which nothing overflows and underflow / nonzero stays below {:g}, "
                                    "rounded with {}{}{}; null if there are none",
                                    options.recommendation.limit, name_of(options.policy.rounding),
                                    options.policy.flushes_output() ? ", subnormals flushed" : "",
                                    random ? ", whatever the random bits" : "")},
        {"recommended_log2_scale",
         fmt::format("0 if the window holds it, else the largest up to 126 that stays {} binades from overflow; null "
                     "if the window is null or lies above 126",
                     options.recommendation.margin)},
        {"error",
         "of the cast, relative to the scaled value; over elements that are finite before and after it; sqnr_db "
         "is null without noise or without signal; signal and noise are sums of squares, text such as 0x1p-1400 where "
         "FP64 cannot hold them"},
        {"blocks",
         "what casts with a scale for each block of consecutive elements would do, by three rules for the scale; "
         "amax is the largest magnitude of a block. mx: the scale is 2^(floor(log2 amax) - the format's largest "
         "exponent). amax: it is amax / the format's largest value, exactly. tensor: the same with the amax of the "
         "whole tensor. overflow counts the elements that the cast clips to the largest value"},
        {"expected", "under stochastic rounding counts are expectations and need not be integers"},
        {"state",
         "the exact histogram, from which --merge counts again. A magnitude is 2^e (1 + m); each row has an exponent e "
         "and counts the elements by the class of m, whose binary digits decide how x is rounded. Class 0: m is 0; 1 "
         "and 2: m begins with no and with one digit 1; 3, 4 and 5: it begins with two, and is below, at and above "
         "0.8125; 6 ... 26: it begins with 3 ... 23; 27: with more. A row ends with its last count that is not 0"},
    };
    if (!findings.total.scale_stated)
        all.emplace_back("scale_stated",
                         "false for gradients whose file states no loss scale, which is then taken for 1; else absent");
    if (!findings.total.is_gradient())
        all.emplace_back("fit",
                         fmt::format("how a format holds tensors that no loss scale multiplies. held: no element "
                                     "overflows, and underflow / nonzero of the tensor is below {:g}; scaled: "
                                     "under the tensor's own scale, the largest power of two at which no element "
                                     "overflows; log2_scales: the smallest and the largest of these scales; "
                                     "overflowing: tensors that overflow without one",
                                     options.recommendation.limit));
    if (is_directed(options.policy.rounding))
        all.emplace_back("toward, away",
                         "rows as those of the state: toward counts the elements whose magnitude this rounding may "
                         "move toward zero, and away those that it may move away from zero. The latter are counted as "
                         "the next smaller magnitude, since a magnitude that is a format's value stays where it is");
    if (!options.fine_needs().ends.empty())
        all.emplace_back("ends",
                         "by the fraction bits of formats that end within a binade: rows as those of the state, in "
                         "which classes 3, 4 and 5 count the elements whose mantissa is below, at and above the tie "
                         "that follows the last fraction of these formats");
    if (findings.shards)
        all.emplace_back("shards, shard",
                         "which of how many shards of a recording are counted here, and of which files nothing may be; "
                         "a tensor's place in the recording and, if it is split, its elements from begin to end of all "
                         "elements, with the sums of these in hexadecimal. Nothing else here is of the whole: --merge "
                         "makes that of all shards");
    if (!options.recipes.empty()) all.insert(all.end(), recipe_definitions.begin(), recipe_definitions.end());
    if (random)
        all.emplace_back("recommended_at_most",
                         "elements that can become zero, and overflow, at the recommended scale; their "
                         "expectations are counted at scale 1 and those of --scale");
    return all;
}

void write_json(const HistogramFindings& findings, const HistogramOptions& options, const TextSink& sink) {
    using Json = nlohmann::ordered_json;
    Json json = {
        {"schema_version", histogram_report_version}, {"tool", "amp-histogram"}, {"version", AMPSCOPE_VERSION}};
    Json definitions = Json::object();
    for (const auto& [name, meaning] : definitions_of(findings, options)) definitions[name] = meaning;
    json["definitions"] = std::move(definitions);
    json["counting"] = counting_json(options);
    json["margin_binades"] = options.recommendation.margin;
    json["limit"] = options.recommendation.limit;
    if (findings.shards) json["shards"] = shards_json(findings);
    LongArrays arrays;
    json["tensors"] =
        arrays.add(findings.tensors.size(), [&](std::size_t i) { return tensor_json(findings.tensors[i], options); });
    if (!findings.groups.empty())
        json["groups"] = arrays.add(findings.groups.size(), [&](std::size_t i) {
            const HistogramEntry& group = findings.groups[i];
            Json item = {{"name", printable(group.name)}, {"tensors", group.tensors}};
            add_counts(item, group, options);
            return item;
        });
    json["total"] = Json::object();
    add_counts(json["total"], findings.total, options);
    json["kinds"] = Json::array();
    for (const KindFindings& kind : findings.kinds) {
        Json item = {{"name", kind.group->name}, {"tensors", kind.total.tensors}, {"advice", Json::array()}};
        for (const std::string& advice : kind.advice) item["advice"].push_back(printable(advice));
        if (findings.kinds.size() > 1) add_counts(item, kind.total, options);
        json["kinds"].push_back(std::move(item));
    }
    json["other_kinds"] = Json::array();
    for (std::size_t i = 0; i < tensor_kind_names.size(); ++i)
        if (findings.other_kinds.has(static_cast<TensorKind>(i))) json["other_kinds"].push_back(tensor_kind_names[i]);
    json["gates"] = Json::array();
    for (const GateResult& gate : findings.gates) json["gates"].push_back(gate_json(gate));
    json["errors"] = Json::array();
    for (const std::string& error : findings.errors) json["errors"].push_back(printable(error));
    arrays.write(json, sink);
}

} // namespace amp::histogram_tool

#include <ampscope/tools/amp-histogram/json.h>

#include <ampscope/sim/analysis/histogram_json.h>

#include <ampscope/sim/base/text.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace amp::histogram_tool {

namespace {

/// A number without ".0" where it is an integer.
Json number(double x) {
    if (x == std::floor(x) && std::abs(x) < 9007199254740992.0) return static_cast<std::int64_t>(x);
    return x;
}

template <class T>
Json or_null(const std::optional<T>& value) {
    return value ? Json(*value) : Json(nullptr);
}

/// A sum that went beyond FP64 is no JSON number.
Json finite_or_null(double x) { return std::isfinite(x) ? Json(x) : Json(nullptr); }

Json state_of(const Entry& entry, const HistogramOptions& options) {
    Json json = {{"mantissa_classes", mantissa_classes}, {"rows", rows_of(entry.magnitudes.histogram)}};
    if (is_directed(options.policy.rounding)) {
        json["toward"] = rows_of(entry.directed.toward);
        json["away"] = rows_of(entry.directed.away);
    }
    return json;
}

/// Why a sum is null, or less than it should be; empty if it is neither.
std::string note_on(const MagnitudeStatistics& magnitudes) {
    if (!std::isfinite(magnitudes.sums.absolute))
        return "sum_absolute and sum_squares are null: beyond FP64's largest value";
    if (!std::isfinite(magnitudes.sums.squares)) return "sum_squares is null: beyond FP64's largest value";
    // A square below 2^-1022 loses bits or becomes zero, which is nothing beside a sum of 2^-970 or more.
    const auto& rows = magnitudes.histogram.rows;
    if (rows.empty() || rows.rbegin()->first >= -485) return {};
    return "sum_squares is too small or 0: the squares of magnitudes below 2^-511 are below FP64's smallest normal "
           "value";
}

/// A number, or hexadecimal text with an exponent of any size where no normal double is near it.
Json sum_json(const SquareSum& sum) {
    const double value = sum.value();
    if (std::isnan(value)) return nullptr;
    return std::isnormal(value) || sum.is_zero() ? Json(value) : Json(sum.text());
}

Json error_json(const CastError& error) {
    const auto rate = error.nonzero == 0 ? Json(nullptr) : Json(error.mean_relative());
    return {{"sqnr_db", finite_or_null(error.sqnr())},
            {"mean_relative", rate},
            {"max_relative", error.max_relative},
            {"compared", error.compared},
            {"excluded", error.excluded},
            {"nonzero", error.nonzero},
            {"signal", sum_json(error.signal)},
            {"noise", sum_json(error.noise)},
            {"sum_relative", finite_or_null(error.sum_relative)}};
}

Json scale_json(const Entry& entry, const FormatSpec& format, const ScaleCounts& at) {
    Json json = {{"scale", number(at.scale)},
                 {"log2", or_null(exact_log2(at.scale))},
                 {"underflow", number(at.counts.underflow)},
                 {"subnormal", number(at.counts.subnormal)},
                 {"normal", number(at.counts.normal)},
                 {"overflow", number(at.counts.overflow)}};
    if (const auto it = entry.errors.find({format.name, at.scale}); it != entry.errors.end())
        json["error"] = error_json(it->second);
    return json;
}

Json counts_json(const ClassCounts& counts) {
    return {{"underflow", counts.underflow},
            {"subnormal", counts.subnormal},
            {"normal", counts.normal},
            {"overflow", counts.overflow}};
}

Json blocks_json(const BlockStatistics& blocks, std::uint64_t size) {
    Json exponents = Json::object(), by_format = Json::object();
    for (const auto& [exponent, n] : blocks.amax_exponents) exponents[std::to_string(exponent)] = n;
    for (const BlockCounts& f : blocks.formats)
        by_format[f.format.name] = {
            {"mx", counts_json(f.mx)}, {"amax", counts_json(f.amax)}, {"tensor", counts_json(f.tensor)}};
    return {{"size", size},
            {"count", blocks.blocks},
            {"zero", blocks.zero_blocks},
            {"amax_exponents", std::move(exponents)},
            {"formats", std::move(by_format)}};
}

Json format_json(const Entry& entry, const FormatSpec& format, const HistogramOptions& options) {
    const FormatResult result = format_result(entry, format, options);
    Json scales = Json::array();
    for (const ScaleCounts& at : result.scales) scales.push_back(scale_json(entry, format, at));
    const Recommendation& advice = result.recommendation;
    Json json = {{"scales", std::move(scales)},
                 {"recommended_log2_scale", or_null(advice.log2_scale)},
                 {"window_log2", advice.window ? Json{advice.window->low, advice.window->high} : Json(nullptr)}};
    if (options.policy.rounding == Rounding::stochastic && advice.log2_scale) {
        const ClassCounts worst = classes_at(entry, format, *advice.log2_scale, options);
        json["recommended_at_most"] = {{"underflow", worst.underflow}, {"overflow", worst.overflow}};
    }
    return json;
}

/// The keys that tensors, groups and the total share.
void add_counts(Json& json, const Entry& entry, const HistogramOptions& options) {
    const MagnitudeHistogram& histogram = entry.magnitudes.histogram;
    const bool any = histogram.nonzero() > 0;
    json["dtype"] = entry.dtype.empty() ? Json(nullptr) : Json(entry.dtype);
    json["shape"] = entry.shape;
    json["recorded_scale"] = entry.recorded_scale ? number(*entry.recorded_scale) : Json(nullptr);
    json["count"] = histogram.count();
    json["zero"] = histogram.zero;
    json["nan"] = histogram.nan;
    json["inf"] = histogram.inf;
    json["min_nonzero"] = any ? Json(entry.magnitudes.min_nonzero) : Json(nullptr);
    json["max"] = any ? Json(entry.magnitudes.max) : Json(nullptr);
    json["sum_absolute"] = finite_or_null(entry.magnitudes.sums.absolute);
    json["sum_squares"] = finite_or_null(entry.magnitudes.sums.squares);
    if (const std::string note = note_on(entry.magnitudes); !note.empty()) json["sums_note"] = note;
    Json exponents = Json::object();
    for (const auto& [exponent, row] : histogram.rows) {
        std::uint64_t sum = 0;
        for (const std::uint64_t n : row) sum += n;
        exponents[std::to_string(exponent)] = sum;
    }
    json["exponents"] = std::move(exponents);
    json["state"] = state_of(entry, options);
    Json by_format = Json::object();
    for (const FormatSpec& format : options.formats) by_format[format.name] = format_json(entry, format, options);
    json["formats"] = std::move(by_format);
    if (options.block != 0) json["blocks"] = blocks_json(entry.blocks, options.block);
}

Json gate_json(const GateResult& result) {
    const Gate& gate = result.gate;
    Json json = {{"gate", gate.text},
                 {"format", gate.format},
                 {"scale", number(gate.scale)},
                 {"class", name_of(gate.number_class)},
                 {"count", number(result.part)}};
    json["of"] = gate.denominator == Denominator::none ? Json(nullptr) : Json(result.whole);
    json["holds"] = result.holds;
    if (result.empty()) json["why"] = "there are no elements to take a share of";
    return json;
}

} // namespace

Json tensor_json(const Entry& entry, const HistogramOptions& options) {
    Json json = {{"file", printable(entry.file)},
                 {"name", printable(entry.name)},
                 {"step", or_null(entry.step)},
                 {"kind", name_of(entry.kind)}};
    add_counts(json, entry, options);
    json["layer"] = printable(entry.layer);
    return json;
}

Json counting_options(const HistogramOptions& options) {
    Json json = {{"rounding", name_of(options.policy.rounding)}, {"flush_subnormals", options.policy.flushes_output()}};
    if (options.error) json["overflow"] = name_of(options.policy.overflow);
    if (options.block != 0) json["block"] = options.block;
    return json;
}

std::vector<std::pair<std::string, std::string>> definitions_of(const HistogramOptions& options) {
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
                                    "rounded with {}{}{}; null if "
                                    "there are none",
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
         "of consecutive elements, by the scale of a block: mx 2^(floor(log2 amax) - the format's largest exponent); "
         "amax exactly amax / the "
         "largest value; tensor: the same with the amax of the whole tensor. Overflow is what such a cast clips"},
        {"expected", "under stochastic rounding counts are expectations and need not be integers"},
        {"state", "per exponent, elements by class of the mantissa m of |x| = 2^e (1 + m): 0: m = 0; 1, 2: no, one "
                  "leading one; 3, 4, 5: two "
                  "leading ones and m below, at, above 0.8125; 6 ... 26: 3 ... 23 leading ones; 27: more. Rows end "
                  "with their last non-zero count"},
    };
    if (is_directed(options.policy.rounding))
        all.emplace_back("toward, away",
                         "of the state: rows of the elements whose magnitude this rounding may move toward "
                         "zero, and away from it; these are entered a hair below their magnitude");
    if (random)
        all.emplace_back("recommended_at_most",
                         "elements that can become zero, and overflow, at the recommended scale; their "
                         "expectations are counted at scale 1 and those of --scale");
    return all;
}

void write_json(const Findings& findings, const HistogramOptions& options, const TextSink& sink) {
    Json json = {{"schema_version", schema_version}, {"tool", "amp-histogram"}, {"version", AMPSCOPE_VERSION}};
    Json definitions = Json::object();
    for (const auto& [name, meaning] : definitions_of(options)) definitions[name] = meaning;
    json["definitions"] = std::move(definitions);
    json["counting"] = counting_options(options);
    json["margin_binades"] = options.recommendation.margin;
    json["limit"] = options.recommendation.limit;
    LongArrays arrays;
    json["tensors"] =
        arrays.add(findings.tensors.size(), [&](std::size_t i) { return tensor_json(findings.tensors[i], options); });
    if (!findings.groups.empty())
        json["groups"] = arrays.add(findings.groups.size(), [&](std::size_t i) {
            const Entry& group = findings.groups[i];
            Json item = {{"name", printable(group.name)}, {"tensors", group.tensors}};
            add_counts(item, group, options);
            return item;
        });
    json["total"] = Json::object();
    add_counts(json["total"], findings.total, options);
    json["gates"] = Json::array();
    for (const GateResult& gate : findings.gates) json["gates"].push_back(gate_json(gate));
    json["errors"] = Json::array();
    for (const std::string& error : findings.errors) json["errors"].push_back(printable(error));
    arrays.write(json, sink);
}

} // namespace amp::histogram_tool

#include <ampscope/tools/histogram/document.h>

#include <ampscope/tools/chart/text.h>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>

namespace amp {

namespace {

using Json = nlohmann::ordered_json;

constexpr int schema_version = 1;

/// A number without ".0" where it is an integer.
Json number(double x) {
    if (x == std::floor(x) && std::abs(x) < 9007199254740992.0) return static_cast<std::int64_t>(x);
    return x;
}

template <class T>
Json or_null(const std::optional<T>& value) { return value ? Json(*value) : Json(nullptr); }

/// A sum that went beyond FP64 is no JSON number.
Json finite_or_null(double x) { return std::isfinite(x) ? Json(x) : Json(nullptr); }

/// Rows end with their last count that is not zero.
Json state_of(const MagnitudeHistogram& histogram) {
    Json rows = Json::object();
    for (const auto& [exponent, row] : histogram.rows) {
        std::size_t used = row.size();
        while (used > 0 && row[used - 1] == 0) --used;
        rows[std::to_string(exponent)] = std::vector<std::uint64_t>(row.begin(), row.begin() + static_cast<std::ptrdiff_t>(used));
    }
    return {{"mantissa_classes", mantissa_classes}, {"rows", std::move(rows)}};
}

Json scale_counts(const ScaleCounts& at) {
    const auto log2 = exact_log2(at.scale);
    return {{"scale", number(at.scale)},          {"log2", or_null(log2)},
            {"underflow", at.counts.underflow},   {"subnormal", at.counts.subnormal},
            {"normal", at.counts.normal},         {"overflow", at.counts.overflow}};
}

Json format_json(const Entry& entry, const FormatSpec& format, const HistogramOptions& options) {
    const FormatResult result = format_result(entry, format, options);
    Json scales = Json::array();
    for (const ScaleCounts& at : result.scales) scales.push_back(scale_counts(at));
    const Recommendation& advice = result.recommendation;
    return {{"scales", std::move(scales)},
            {"recommended_log2_scale", or_null(advice.log2_scale)},
            {"window_log2", advice.window ? Json{advice.window->low, advice.window->high} : Json(nullptr)}};
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
    Json exponents = Json::object();
    for (const auto& [exponent, row] : histogram.rows) {
        std::uint64_t sum = 0;
        for (const std::uint64_t n : row) sum += n;
        exponents[std::to_string(exponent)] = sum;
    }
    json["exponents"] = std::move(exponents);
    json["state"] = state_of(histogram);
    Json by_format = Json::object();
    for (const FormatSpec& format : options.formats) by_format[format.name] = format_json(entry, format, options);
    json["formats"] = std::move(by_format);
}

Json tensor_json(const Entry& entry, const HistogramOptions& options) {
    Json json = {{"file", printable(entry.file)}, {"name", printable(entry.name)}, {"step", or_null(entry.step)}, {"kind", name_of(entry.kind)}};
    add_counts(json, entry, options);
    json["layer"] = printable(entry.layer);
    return json;
}

Json gate_json(const GateResult& result) {
    const Gate& gate = result.gate;
    Json json = {{"gate", gate.text}, {"format", gate.format}, {"scale", number(gate.scale)}, {"class", name_of(gate.number_class)}, {"count", result.part}};
    json["of"] = gate.denominator == Denominator::none ? Json(nullptr) : Json(result.whole);
    json["holds"] = result.holds;
    return json;
}

/// What decides the counts, so that reports are merged only where they were counted alike.
Json counting_options(const HistogramOptions& options) {
    return {{"rounding", static_cast<int>(options.policy.rounding)}, {"flush_subnormals", options.policy.flushes_output()}};
}

// Reading.

std::uint64_t count_at(const Json& json, const char* key) { return json.at(key).get<std::uint64_t>(); }

MagnitudeHistogram parse_state(const Json& json) {
    MagnitudeHistogram histogram{.zero = count_at(json, "zero"), .nan = count_at(json, "nan"), .inf = count_at(json, "inf")};
    const Json& state = json.at("state");
    if (state.at("mantissa_classes") != mantissa_classes) throw std::invalid_argument("its state has other mantissa classes");
    for (const auto& [exponent, row] : state.at("rows").items()) {
        const auto counts = row.get<std::vector<std::uint64_t>>();
        if (counts.empty() || counts.size() > mantissa_classes) throw std::invalid_argument("a row of its state has the wrong length");
        const int e = std::stoi(exponent);
        if (std::abs(e) > 4000) throw std::invalid_argument("its state has an exponent out of range");
        std::ranges::copy(counts, histogram.rows[e].begin());
    }
    if (histogram.count() != count_at(json, "count")) throw std::invalid_argument("its state and its count differ");
    return histogram;
}

Entry parse_tensor(const Json& json, const HistogramOptions& options) {
    Entry entry;
    entry.file = json.at("file").get<std::string>();
    entry.name = json.at("name").get<std::string>();
    entry.layer = json.at("layer").get<std::string>();
    if (!json.at("step").is_null()) entry.step = json.at("step").get<std::int64_t>();
    entry.kind = json.at("kind") == "activation" ? GradientKind::activation : GradientKind::weight;
    entry.dtype = json.at("dtype").get<std::string>();
    entry.shape = json.at("shape").get<std::vector<std::uint64_t>>();
    entry.recorded_scale = json.at("recorded_scale").get<double>();
    entry.magnitudes.histogram = parse_state(json);
    const auto read = [&](const char* key, double otherwise) { return json.at(key).is_null() ? otherwise : json.at(key).get<double>(); };
    constexpr double infinity = std::numeric_limits<double>::infinity();
    entry.magnitudes.min_nonzero = read("min_nonzero", 0);
    entry.magnitudes.max = read("max", 0);
    entry.magnitudes.sums = {read("sum_absolute", infinity), read("sum_squares", infinity)};
    for (const auto& [format, result] : json.at("formats").items())
        for (const Json& at : result.at("scales")) {
            const auto scale = at.at("scale").get<double>();
            if (options.from_histogram(scale)) continue;
            entry.own[{format, scale}] = {count_at(at, "underflow"), count_at(at, "subnormal"), count_at(at, "normal"), count_at(at, "overflow")};
        }
    for (const auto& [format, scale] : wanted_counts(options))
        if (!knows(entry, format, scale, options))
            throw std::invalid_argument(fmt::format("it holds no counts of {} at scale {:g}; run amp-histogram on the tensors with --scale {:g}", format.name, scale, scale));
    return entry;
}

} // namespace

std::vector<std::pair<std::string, std::string>> definitions_of(const HistogramOptions& options) {
    return {
        {"magnitude", "|x| of the recorded value divided by the recorded scale"},
        {"rounding", "each element times the scale, exactly, then rounded once to the format; overflow is judged with an unbounded exponent"},
        {"zero", "+0 or -0 as recorded"},
        {"underflow", "finite, not zero, and rounds to zero"},
        {"subnormal", "rounds to a non-zero value below the format's smallest normal value"},
        {"normal", "rounds to a normal finite value"},
        {"overflow", "finite, and rounds to more than the format's largest finite value"},
        {"nonzero", "finite and not zero: the denominator of rates unless all is said"},
        {"sum_absolute", "sum of the finite magnitudes; with sum_squares the 1-norm and the square of the 2-norm"},
        {"exponents", "finite non-zero elements by floor(log2(magnitude))"},
        {"window_log2", fmt::format("scales 2^k at which nothing overflows and underflow / nonzero stays below {:g}, with nearest-even", options.recommendation.limit)},
        {"recommended_log2_scale", fmt::format("0 if the window holds it, else the largest up to 126 that stays {} binades from overflow", options.recommendation.margin)},
        {"state", "per exponent, elements by class of the mantissa m of |x| = 2^e (1 + m): 0: m = 0; 1, 2: no, one leading one; 3, 4, 5: two "
                  "leading ones and m below, at, above 0.8125; 6 ... 26: 3 ... 23 leading ones; 27: more. Rows end with their last non-zero count"},
    };
}

std::string json_document(const Findings& findings, const HistogramOptions& options) {
    Json json = {{"schema_version", schema_version}, {"tool", "amp-histogram"}, {"version", AMPSCOPE_VERSION}};
    Json definitions = Json::object();
    for (const auto& [name, meaning] : definitions_of(options)) definitions[name] = meaning;
    json["definitions"] = std::move(definitions);
    json["counting"] = counting_options(options);
    json["margin_binades"] = options.recommendation.margin;
    json["limit"] = options.recommendation.limit;
    json["tensors"] = Json::array();
    for (const Entry& tensor : findings.tensors) json["tensors"].push_back(tensor_json(tensor, options));
    if (!findings.groups.empty()) {
        json["groups"] = Json::array();
        for (const Entry& group : findings.groups) {
            Json item = {{"name", printable(group.name)}, {"tensors", group.tensors}};
            add_counts(item, group, options);
            json["groups"].push_back(std::move(item));
        }
    }
    json["total"] = Json::object();
    add_counts(json["total"], findings.total, options);
    json["gates"] = Json::array();
    for (const GateResult& gate : findings.gates) json["gates"].push_back(gate_json(gate));
    json["errors"] = Json::array();
    for (const std::string& error : findings.errors) json["errors"].push_back(printable(error));
    return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::vector<Entry> read_report(const std::filesystem::path& path, const HistogramOptions& options) {
    std::ifstream file(path);
    if (!file) throw FileError(path, "cannot open");
    try {
        const Json json = Json::parse(file);
        if (json.at("tool") != "amp-histogram" || json.at("schema_version") != schema_version)
            throw std::invalid_argument("it is no report of amp-histogram with schema version 1");
        if (json.at("counting") != counting_options(options))
            throw std::invalid_argument("it was counted with another --rounding or --flush-subnormals");
        std::vector<Entry> entries;
        for (const Json& tensor : json.at("tensors")) entries.push_back(parse_tensor(tensor, options));
        return entries;
    } catch (const std::exception& error) {
        throw FileError(path, std::string("cannot merge: ") + error.what());
    }
}

} // namespace amp

#include <ampscope/sim/findings/histogram_report.h>

#include <ampscope/sim/analysis/histogram_json.h>
#include <ampscope/sim/base/text.h>
#include <ampscope/sim/findings/detail/recipe_json.h>
#include <ampscope/sim/io/json_value.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace amp {

namespace {

using Json = nlohmann::ordered_json;

/// A number; integers are written without ".0".
Json number(double x) {
    if (x == std::floor(x) && std::abs(x) < 9007199254740992.0) return static_cast<std::int64_t>(x);
    return x;
}

Json state_of(const HistogramEntry& entry, const HistogramOptions& options) {
    Json json = {{"mantissa_classes", mantissa_classes}, {"rows", rows_of(entry.magnitudes.histogram)}};
    if (is_directed(options.policy.rounding)) {
        json["toward"] = rows_of(entry.fine.toward);
        json["away"] = rows_of(entry.fine.away);
    }
    for (const auto& [bits, histogram] : entry.fine.ends) json["ends"][std::to_string(bits)] = rows_of(histogram);
    return json;
}

/// Why a sum is null, or smaller than it should be; empty if neither.
std::string note_on(const HistogramEntry& entry) {
    const MagnitudeStatistics& magnitudes = entry.magnitudes;
    if (!entry.measured) return "extremes and sums are null: only histograms were recorded";
    if (!std::isfinite(magnitudes.sums.absolute))
        return "sum_absolute and sum_squares are null: beyond FP64's largest value";
    if (!std::isfinite(magnitudes.sums.squares)) return "sum_squares is null: beyond FP64's largest value";
    // A square below 2^-1022 loses bits or becomes zero, which does not matter to a sum of 2^-970 or more.
    const auto& rows = magnitudes.histogram.rows;
    if (rows.empty() || rows.rbegin()->first >= -485) return {};
    return "sum_squares is too small or 0: the squares of magnitudes below 2^-511 are below FP64's smallest normal "
           "value";
}

/// A number; if no normal double is near it, hexadecimal text with an exponent of any size.
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

Json scale_json(const HistogramEntry& entry, const FormatSpec& format, const ScaleCounts& at) {
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

Json shard_json(const ShardedTensor& shard) {
    Json json = {{"index", shard.index}};
    if (!shard.is_part()) return json;
    json.update({{"begin", shard.begin},
                 {"end", shard.end},
                 {"elements", shard.elements},
                 {"sum_absolute", shard.absolute.text()},
                 {"sum_squares", shard.squares.text()},
                 {"backward", shard.backward}});
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

Json fit_json(const FormatFit& fit) {
    return {{"tensors", fit.tensors},
            {"overflowing", fit.overflowing},
            {"held", fit.held},
            {"held_scaled", fit.held_scaled},
            {"log2_scales", fit.tensors > 0 ? Json(fit.log2_scales) : Json(nullptr)},
            {"scaled", counts_json(fit.scaled)}};
}

/// `index`: of the format in the options.
Json format_json(const HistogramEntry& entry, std::size_t index, const HistogramOptions& options) {
    const FormatSpec& format = options.formats[index];
    const FormatCounts result = format_counts(entry, format, options);
    Json scales = Json::array();
    for (const ScaleCounts& at : result.scales) scales.push_back(scale_json(entry, format, at));
    Json json = {{"scales", std::move(scales)}};
    if (!entry.fits.empty()) json["fit"] = fit_json(entry.fits[index]);
    if (!entry.is_gradient()) return json;
    const Recommendation& advice = result.recommendation;
    json["recommended_log2_scale"] = or_null(advice.log2_scale);
    json["window_log2"] = advice.window ? Json{advice.window->low, advice.window->high} : Json(nullptr);
    add_known(json, advice);
    if (options.policy.rounding == Rounding::stochastic && advice.log2_scale) {
        const ClassCounts worst = classes_at(entry, format, *advice.log2_scale, options);
        json["recommended_at_most"] = {{"underflow", worst.underflow}, {"overflow", worst.overflow}};
    }
    return json;
}

} // namespace

void add_counts(Json& json, const HistogramEntry& entry, const HistogramOptions& options) {
    const MagnitudeHistogram& histogram = entry.magnitudes.histogram;
    const bool any = histogram.nonzero() > 0 && entry.measured;
    json["dtype"] = entry.dtype.empty() ? Json(nullptr) : Json(entry.dtype);
    json["shape"] = entry.shape;
    json["recorded_scale"] = entry.recorded_scale ? number(*entry.recorded_scale) : Json(nullptr);
    if (!entry.scale_stated) json["scale_stated"] = false;
    json["count"] = histogram.count();
    json["zero"] = histogram.zero;
    json["nan"] = histogram.nan;
    json["inf"] = histogram.inf;
    json["min_nonzero"] = any ? Json(entry.magnitudes.min_nonzero) : Json(nullptr);
    json["max"] = any ? Json(entry.magnitudes.max) : Json(nullptr);
    json["sum_absolute"] = entry.measured ? finite_or_null(entry.magnitudes.sums.absolute) : Json(nullptr);
    if (entry.censoring.below_log2)
        json["hidden"] = {{"below_log2", *entry.censoring.below_log2}, {"zeros", entry.censoring.zeros}};
    else if (entry.censoring.elements > 0) json["hidden"] = {{"below_log2", nullptr}, {"zeros", 0}};
    if (entry.censoring.hides_terms()) json["hidden"]["terms"] = true;
    json["sum_squares"] = entry.measured ? finite_or_null(entry.magnitudes.sums.squares) : Json(nullptr);
    if (const std::string note = note_on(entry); !note.empty()) json["sums_note"] = note;
    Json exponents = Json::object();
    for (const auto& [exponent, n] : histogram.exponents()) exponents[std::to_string(exponent)] = n;
    json["exponents"] = std::move(exponents);
    json["state"] = state_of(entry, options);
    Json by_format = Json::object();
    for (std::size_t i = 0; i < options.formats.size(); ++i)
        by_format[options.formats[i].name] = format_json(entry, i, options);
    json["formats"] = std::move(by_format);
    if (options.block != 0) json["blocks"] = blocks_json(entry.blocks, options.block);
    for (std::size_t i = 0; i < options.recipes.size(); ++i)
        json["recipes"][options.recipes[i].text] = detail::effect_json(entry.recipes[i], options.recipes[i]);
}

Json tensor_json(const HistogramEntry& entry, const HistogramOptions& options) {
    Json json = {{"file", printable(entry.file)},
                 {"name", printable(entry.name)},
                 {"step", or_null(entry.step)},
                 {"kind", names_of(entry.kinds)}};
    add_counts(json, entry, options);
    json["layer"] = printable(entry.layer);
    if (entry.shard) json["shard"] = shard_json(*entry.shard);
    return json;
}

Json shards_json(const HistogramFindings& findings) {
    const CountedShards& shards = *findings.shards;
    Json failed = Json::array(), warnings = Json::array();
    for (const std::string& warning : findings.warnings) warnings.push_back(printable(warning));
    for (const FailedCount& f : shards.failed)
        failed.push_back({{"file", printable(f.file)},
                          {"whole", f.whole},
                          {"index", f.index},
                          {"begin", f.begin},
                          {"damaged", printable(f.damaged)},
                          {"error", printable(f.error)}});
    return {{"numbers", shards.numbers},
            {"of", shards.of},
            {"recording", shards.recording},
            {"failed", failed},
            {"warnings", warnings}};
}

Json counting_json(const HistogramOptions& options) {
    Json json = {{"rounding", name_of(options.policy.rounding)}, {"flush_subnormals", options.policy.flushes_output()}};
    const Policy usual{};
    if (options.policy.random_bits != usual.random_bits) json["random_bits"] = options.policy.random_bits;
    if (options.policy.variant != usual.variant) json["stochastic_variant"] = name_of(options.policy.variant);
    if (options.error) json["overflow"] = name_of(options.policy.overflow);
    if (options.block != 0) json["block"] = options.block;
    if (!options.recipes.empty()) json["worst_blocks"] = options.worst_blocks;
    for (const RecipeChoice& choice : options.recipes) json["recipes"].push_back(choice.text);
    return json;
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

} // namespace amp

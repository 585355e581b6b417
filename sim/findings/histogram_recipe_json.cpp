#include <ampscope/sim/findings/detail/recipe_json.h>

#include <ampscope/sim/base/text.h>
#include <ampscope/sim/findings/detail/report_values.h>
#include <ampscope/sim/io/json_value.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

namespace amp {

namespace {

using Json = nlohmann::ordered_json;

/// The counts of ScaledStatistics and of ScaledBlock, in the order of reports.
template <class Counted>
struct NamedCount {
    const char* key;
    std::uint64_t Counted::*count;
};
constexpr NamedCount<ScaledStatistics> element_counts[] = {
    {"elements", &ScaledStatistics::elements},   {"nonzero", &ScaledStatistics::nonzero},
    {"nonfinite", &ScaledStatistics::nonfinite}, {"underflow", &ScaledStatistics::underflow},
    {"saturated", &ScaledStatistics::saturated}, {"lost", &ScaledStatistics::lost}};
constexpr NamedCount<ScaledStatistics> block_counts[] = {{"blocks", &ScaledStatistics::blocks},
                                                         {"zero_blocks", &ScaledStatistics::zero_blocks},
                                                         {"partial_blocks", &ScaledStatistics::partial_blocks},
                                                         {"nonfinite_blocks", &ScaledStatistics::nonfinite_blocks}};
constexpr NamedCount<ScaledStatistics> scale_counts[] = {{"zero", &ScaledStatistics::zero_scales},
                                                         {"nonfinite", &ScaledStatistics::nonfinite_scales},
                                                         {"saturated", &ScaledStatistics::saturated_scales}};
constexpr NamedCount<ScaledBlock> counts_of_block[] = {
    {"elements", &ScaledBlock::elements},   {"nonzero", &ScaledBlock::nonzero},
    {"nonfinite", &ScaledBlock::nonfinite}, {"underflow", &ScaledBlock::underflow},
    {"saturated", &ScaledBlock::saturated}, {"lost", &ScaledBlock::lost}};

template <class Counted, std::size_t n>
void write_counts(Json& json, const Counted& of, const NamedCount<Counted> (&table)[n]) {
    for (const auto& [key, count] : table) json[key] = of.*count;
}
template <class Counted, std::size_t n>
void read_counts(const Json& json, Counted& of, const NamedCount<Counted> (&table)[n]) {
    for (const auto& [key, count] : table) of.*count = detail::count_at(json, key);
}

Json by_key(const std::map<int, std::uint64_t>& counts) {
    Json json = Json::object();
    for (const auto& [key, n] : counts) json[std::to_string(key)] = n;
    return json;
}
std::map<int, std::uint64_t> parse_by_key(const Json& json) {
    std::map<int, std::uint64_t> counts;
    for (const auto& [key, n] : json.items()) counts[detail::parse_exponent(key)] = detail::whole(n);
    return counts;
}

Json ratio(double part, std::uint64_t whole) {
    return whole == 0 ? Json(nullptr) : Json(part / static_cast<double>(whole));
}

double sum_at(const Json& json, const char* key) {
    const double sum = detail::number_at(json, key);
    if (!(sum >= 0) || !std::isfinite(sum))
        throw std::invalid_argument(std::string("its ") + key + " is no sum of squares");
    return sum;
}

/// A magnitude or a scale; null: NaN.
float float_at(const Json& json, const char* key) {
    const double x = detail::number_at(json, key, std::nan(""));
    if (x < 0 || x > std::numeric_limits<float>::max())
        throw std::invalid_argument(std::string("its ") + key + " is no FP32 magnitude");
    return static_cast<float>(x);
}

Json block_json(const RecordedBlock& block) {
    Json json = {{"tensor", printable(block.tensor)},
                 {"step", or_null(block.step)},
                 {"row", block.row},
                 {"column", block.column},
                 {"scale", finite_or_null(block.scale)},
                 {"amax", block.amax},
                 {"least", block.least}};
    write_counts(json, static_cast<const ScaledBlock&>(block), counts_of_block);
    json["sqnr_db"] = finite_or_null(block.sqnr());
    json["signal"] = block.signal;
    json["noise"] = block.noise;
    return json;
}

RecordedBlock parse_block(const Json& json) {
    RecordedBlock block;
    block.tensor = json.at("tensor").get<std::string>();
    if (const Json& step = json.at("step"); !step.is_null()) block.step = step.get<std::int64_t>();
    block.row = static_cast<std::int64_t>(detail::count_at(json, "row"));
    block.column = static_cast<std::int64_t>(detail::count_at(json, "column"));
    block.scale = float_at(json, "scale");
    block.amax = float_at(json, "amax");
    block.least = float_at(json, "least");
    read_counts(json, static_cast<ScaledBlock&>(block), counts_of_block);
    block.signal = sum_at(json, "signal");
    block.noise = sum_at(json, "noise");
    return block;
}

void check(const RecipeEffect& effect) {
    const ScaledStatistics& s = effect.statistics;
    std::uint64_t scales = 0;
    for (const auto& [key, n] : s.scales) scales += n;
    if (s.nonfinite > s.elements || s.lost > s.elements - s.nonfinite || s.nonzero > s.elements - s.nonfinite ||
        s.underflow > s.nonzero || s.saturated > s.nonzero ||
        s.blocks != s.zero_blocks + s.zero_scales + s.nonfinite_scales + scales)
        throw std::invalid_argument("the counts of a recipe contradict each other");
    if (!std::ranges::is_sorted(effect.worst, std::greater{}, &ScaledBlock::relative_noise))
        throw std::invalid_argument("a recipe's worst blocks are not in order");
}

} // namespace

Json detail::effect_json(const RecipeEffect& effect, const RecipeChoice& choice) {
    const ScaledStatistics& s = effect.statistics;
    Json json = {{"tensors", effect.tensors}, {"unscaled", effect.unscaled}};
    json["role"] = effect.role ? Json(name_of(*effect.role)) : Json(nullptr);
    json["element"] = or_null(effect.element);
    json["block"] = effect.block ? Json{effect.block->first, effect.block->second} : Json(nullptr);
    write_counts(json, s, element_counts);
    json["underflow_of_nonzero"] = ratio(static_cast<double>(s.underflow), s.nonzero);
    json["underflow_of_all"] = ratio(static_cast<double>(s.underflow), s.elements);
    json["sqnr_db"] = finite_or_null(s.sqnr());
    json["mean_squared_error"] = finite_or_null(s.mean_squared_error());
    json["signal"] = s.signal;
    json["noise"] = s.noise;
    write_counts(json, s, block_counts);
    Json scales = {{"format", choice.recipe.gradient.scale_format().name}};
    write_counts(scales, s, scale_counts);
    scales["least"] = s.least_scale;
    scales["largest"] = s.largest_scale;
    scales["spread"] = finite_or_null(s.spread());
    scales["counts"] = by_key(s.scales);
    json["scales"] = std::move(scales);
    json["log2_amax_over_least"] = by_key(s.ranges);
    json["worst"] = Json::array();
    for (const RecordedBlock& block : effect.worst) json["worst"].push_back(block_json(block));
    return json;
}

RecipeEffect detail::parse_effect(const Json& json) {
    RecipeEffect effect;
    effect.tensors = count_at(json, "tensors");
    effect.unscaled = count_at(json, "unscaled");
    if (const Json& role = json.at("role"); !role.is_null())
        effect.role = parse_name<OperandRole>("role", operand_role_names, role.get<std::string>());
    if (const Json& element = json.at("element"); !element.is_null())
        effect.element = format(element.get<std::string>()).name;
    if (const Json& block = json.at("block"); !block.is_null())
        effect.block = {static_cast<std::int64_t>(whole(block.at(0))), static_cast<std::int64_t>(whole(block.at(1)))};
    ScaledStatistics& s = effect.statistics;
    read_counts(json, s, element_counts);
    s.signal = sum_at(json, "signal");
    s.noise = sum_at(json, "noise");
    read_counts(json, s, block_counts);
    const Json& scales = json.at("scales");
    read_counts(scales, s, scale_counts);
    s.least_scale = float_at(scales, "least");
    s.largest_scale = float_at(scales, "largest");
    s.scales = parse_by_key(scales.at("counts"));
    s.ranges = parse_by_key(json.at("log2_amax_over_least"));
    for (const Json& block : json.at("worst")) effect.worst.push_back(parse_block(block));
    check(effect);
    return effect;
}

} // namespace amp

// The part of scaling_recipe.h about options: what a text may change in a row.
#include <ampscope/sim/program/scaling_recipe.h>

#include <ampscope/formats/names.h>
#include <ampscope/sim/base/number.h>

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <stdexcept>
#include <utility>
#include <vector>

namespace amp {

int whole_number(std::string_view text, int least, int most) {
    if (const std::optional<int> n = number_of(text, least, most)) return *n;
    throw std::invalid_argument(fmt::format("expected a whole number from {} to {}", least, most));
}

namespace {

/// A number up to 1.
float fraction(std::string_view text, float least) {
    if (const std::optional<float> x = number_of(text, least, 1.0F)) return *x;
    throw std::invalid_argument(fmt::format("expected a number from {} to 1", least));
}

/// One of two words: whether it is the second.
bool second_of(std::string_view what, const std::array<std::string_view, 2>& words, std::string_view value) {
    return parse_name<std::uint8_t>(what, words, value) == 1;
}

/// Whether there are upper scales, of tensors or of lines as one likes.
bool chooses_upper(ScaleRule rule) { return has_upper_scales(rule) && rule != ScaleRule::ms_eden; }

/// Only the rule amax leaves scales open; with any other they are as that rule has them.
void set_rule(OperandScaling& operand, std::string_view value) {
    operand.rule = parse_name<ScaleRule>("rule", scale_rule_names, value);
    if (operand.rule == ScaleRule::amax) return;
    operand.scale = OperandScaling{}.scale;
    operand.scale_rounding = OperandScaling{}.scale_rounding;
    if (operand.upper.level == UpperLevel::none || !chooses_upper(operand.rule))
        operand.upper.level = UpperLevel::tensor;
}

void set_scale(OperandScaling& operand, std::string_view value) {
    operand.scale = format(value);
    if (operand.scale.is_integer())
        throw std::invalid_argument(
            fmt::format("scales are floating-point numbers, {} has integers", operand.scale.name));
}

void set_scale_rounding(OperandScaling& operand, std::string_view value) {
    operand.scale_rounding = parse_name<Rounding>("rounding", rounding_names, value);
    if (operand.scale_rounding == Rounding::stochastic)
        throw std::invalid_argument("scales by the rule amax are not rounded stochastically");
}

void set_upper(OperandScaling& operand, std::string_view value) {
    operand.upper.level = parse_name<UpperLevel>("upper", upper_level_names, value);
    if (!chooses_upper(operand.rule))
        throw std::invalid_argument(fmt::format(
            "the rule {} has no choice of upper scales; nvfp4, quartet and amax have", name_of(operand.rule)));
    if (operand.upper.level == UpperLevel::none && operand.rule != ScaleRule::amax)
        throw std::invalid_argument("only the rule amax does without upper scales");
}

/// An option of one operand, or of all.
struct OperandOption {
    std::string_view name, values;
    void (*set)(OperandScaling&, std::string_view value);
    bool of_amax = false; ///< only the rule amax has it
};

constexpr OperandOption operand_options[] = {
    {"format", "a format", [](OperandScaling& o, std::string_view v) { o.element = format(v); }},
    {"rule", "a rule of scales", set_rule},
    {"scale", "by the rule amax, a format", set_scale, true},
    {"scale-rounding", "by the rule amax, a rounding", set_scale_rounding, true},
    {"block", "such as 1x16", set_block},
    {"rounding", "a rounding",
     [](OperandScaling& o, std::string_view v) { o.rounding = parse_name<Rounding>("rounding", rounding_names, v); }},
    {"clip", "0.01 to 1", [](OperandScaling& o, std::string_view v) { o.clip = fraction(v, 0.01F); }},
    {"random-bits", "1 to 32",
     [](OperandScaling& o, std::string_view v) { o.random_bits = static_cast<std::uint8_t>(whole_number(v, 1, 32)); }},
    {"4over6", "off, mae, mse",
     [](OperandScaling& o, std::string_view v) {
         o.upper.four_over_six = parse_name<FourOverSix>("4over6", four_over_six_names, v);
     }},
    {"e4m3-max", "448, 256",
     [](OperandScaling& o, std::string_view v) {
         o.upper.e4m3_max = second_of("e4m3-max", {"448", "256"}, v) ? 256 : 448;
     }},
    {"upper", "tensor, line; by the rule amax none, too", set_upper},
    {"columnwise", "original, dequantized",
     [](OperandScaling& o, std::string_view v) {
         o.requantizes = second_of("columnwise", {"original", "dequantized"}, v);
     }},
};

/// An option of the recipe.
struct RecipeOption {
    std::string_view name, values;
    bool of_delayed; ///< only delayed scaling has it
    void (*set)(ScalingRecipe&, std::string_view value);
};

constexpr RecipeOption recipe_option_rows[] = {
    {"forward", "a format", false,
     [](ScalingRecipe& r, std::string_view v) { r.input.element = r.weight.element = format(v); }},
    {"backward", "a format", false, [](ScalingRecipe& r, std::string_view v) { r.gradient.element = format(v); }},
    {"hadamard", "off, te, random, quartet", false,
     [](ScalingRecipe& r, std::string_view v) { r.rotation = find_row("hadamard", rotations, v); }},
    {"backward-operands", "scaled, weight-gradient-unscaled, high-precision, dequantized", false,
     [](ScalingRecipe& r, std::string_view v) {
         r.backward = parse_name<BackwardOperands>("backward-operands", backward_operands_names, v);
     }},
    {"margin", "a number", true, [](ScalingRecipe& r, std::string_view v) { r.margin = whole_number(v, 0, 100); }},
    {"history", "a number", true,
     [](ScalingRecipe& r, std::string_view v) { r.history = whole_number(v, 1, 1 << 20); }},
    {"amax", "max, most-recent", true,
     [](ScalingRecipe& r, std::string_view v) {
         r.most_recent = second_of("amax", {"max", "most-recent"}, v);
     }},
    {"reduce", "off, on", true,
     [](ScalingRecipe& r, std::string_view v) {
         r.reduces_amax = second_of("reduce", {"off", "on"}, v);
     }},
};

/// Which of two options of a recipe is set first, whatever their order in a text: the one with the lower place. Options
/// of one operand come after those of all, a rule, which has scales of its own, before what changes these, and random
/// bits after every rounding, so that bits which nothing takes are noticed.
int place_of(std::string_view key) {
    constexpr std::string_view of_precision = "scaling-";
    if (key.starts_with(of_precision)) key.remove_prefix(of_precision.size());
    if (std::ranges::find(recipe_option_rows, key, &RecipeOption::name) != std::end(recipe_option_rows)) return 3;
    const std::size_t cut = key.find('-');
    const std::string_view prefix = key.substr(0, cut);
    const bool of_one = prefix == "input" || prefix == "weight" || prefix == "gradient";
    const std::string_view name = of_one ? key.substr(std::min(cut, key.size() - 1) + 1) : key;
    if (std::ranges::find(operand_options, name, &OperandOption::name) == std::end(operand_options)) return 0;
    if (name == "random-bits") return of_one ? 7 : 6;
    return (of_one ? 4 : 1) + (name == "rule" ? 0 : 1);
}

/// The operands that a key names, whose prefix is removed from it.
std::vector<OperandScaling*> operands_of(ScalingRecipe& recipe, std::string_view& key) {
    struct Prefix {
        std::string_view word;
        OperandScaling* usual;
        std::optional<OperandScaling>* in_backward;
    };
    std::optional<OperandScaling> none;
    const Prefix prefixes[] = {{"input-", &recipe.input, &recipe.input_in_backward},
                               {"weight-", &recipe.weight, &recipe.weight_in_backward},
                               {"gradient-", &recipe.gradient, &none}};
    const bool all = std::ranges::none_of(prefixes, [&](const Prefix& p) { return key.starts_with(p.word); });
    std::vector<OperandScaling*> operands;
    for (const Prefix& p : prefixes) {
        if (!all && !key.starts_with(p.word)) continue;
        operands.push_back(p.usual);
        if (*p.in_backward) operands.push_back(&**p.in_backward);
    }
    if (!all) key.remove_prefix(key.find('-') + 1);
    return operands;
}

void check(const OperandScaling& operand) {
    if (operand.element.is_scale())
        throw std::invalid_argument(fmt::format("{} holds scales, not numbers", operand.element.name));
    if (operand.rule == ScaleRule::affine && !takes_zero_points(operand.element))
        throw std::invalid_argument(
            fmt::format("the rule affine needs the format int8 or int4, not {}", operand.element.name));
    if (operand.clip != 1 && operand.rule != ScaleRule::te && operand.rule != ScaleRule::affine)
        throw std::invalid_argument("only the rules te and affine clip");
    if (operand.upper == UpperScales{}) return;
    if (operand.upper != UpperScales{.level = operand.upper.level} && operand.rule != ScaleRule::nvfp4 &&
        operand.rule != ScaleRule::quartet)
        throw std::invalid_argument(fmt::format("4over6 and e4m3-max need E4M3 scales of blocks below an upper scale, "
                                                "which only the rules nvfp4 and quartet have, not {}: "
                                                "name one operand (input-4over6=mae), or leave it out",
                                                name_of(operand.rule)));
    constexpr int most = 16; // TE's sums of errors
    if (operand.upper.four_over_six != FourOverSix::off &&
        (operand.along == 0 || operand.along > most || (operand.across != 1 && operand.across != operand.along)))
        throw std::invalid_argument("4over6 takes blocks of 1x16 and 16x16, or smaller ones of these shapes");
    if (operand.upper.lines() && (operand.across != 1 || operand.along == 0))
        throw std::invalid_argument(
            fmt::format("upper scales of lines need blocks of one line, such as 1x16, not {}x{}: "
                        "name one operand (input-upper=line), or give all such a block",
                        operand.across, operand.along));
}

} // namespace

void set_block(OperandScaling& operand, std::string_view value) {
    const std::size_t x = value.find('x');
    if (x == std::string_view::npos)
        throw std::invalid_argument(
            "expected a block such as 1x16: across and along the axis that a product sums over");
    operand.across = whole_number(value.substr(0, x), 0, 1 << 20);
    operand.along = whole_number(value.substr(x + 1), 0, 1 << 20);
}

void read_keys(std::string_view text, const std::function<void(std::string_view, bool)>& named,
               const std::function<void(std::string_view, std::string_view)>& set) {
    bool first = true;
    std::vector<std::pair<std::string_view, std::string_view>> keys;
    for (std::string_view rest = text; first || !rest.empty(); first = false) {
        const std::size_t end = std::min(rest.find(','), rest.size());
        const std::string_view item = rest.substr(0, end);
        rest.remove_prefix(std::min(end + 1, rest.size()));
        const std::size_t equals = item.find('=');
        if (equals == std::string_view::npos) {
            named(item, first);
            continue;
        }
        const std::string_view key = item.substr(0, equals);
        if (std::ranges::count(keys, key, [](const auto& pair) { return pair.first; }) > 0)
            throw std::invalid_argument(fmt::format("{}: {}= is given twice", text, key));
        keys.emplace_back(key, item.substr(equals + 1));
    }
    std::ranges::stable_sort(keys, {}, [](const auto& pair) { return place_of(pair.first); });
    for (const auto& [key, value] : keys) set(key, value);
}

std::string recipe_options() {
    std::vector<std::string> names;
    for (const RecipeOption& row : recipe_option_rows)
        names.push_back(fmt::format("{} ({}{})", row.name, row.of_delayed ? "delayed scaling: " : "", row.values));
    for (const OperandOption& row : operand_options) names.push_back(fmt::format("{} ({})", row.name, row.values));
    return fmt::format("{}; the last {} also for one operand, as in weight-block", fmt::join(names, ", "),
                       std::size(operand_options));
}

void set_option(ScalingRecipe& recipe, std::string_view key, std::string_view value) {
    for (const RecipeOption& row : recipe_option_rows)
        if (row.name == key && (recipe.delayed() || !row.of_delayed)) return row.set(recipe, value);
    std::string_view name = key;
    const std::vector<OperandScaling*> operands = operands_of(recipe, name);
    const auto row = std::ranges::find(operand_options, name, &OperandOption::name);
    if (row == std::end(operand_options)) throw_unknown("option of a recipe", key, recipe_options());
    if (row->name == "clip" && recipe.delayed()) throw std::invalid_argument("delayed scaling does not clip");
    if (row->name == "rule" && recipe.delayed()) throw std::invalid_argument("delayed scaling has a rule of its own");
    const auto rounds_randomly = [](const OperandScaling* o) { return o->rounding == Rounding::stochastic; };
    if (row->name == "random-bits" && std::ranges::none_of(operands, rounds_randomly))
        throw std::invalid_argument(fmt::format("{} changes nothing: no such operand is rounded stochastically", key));
    for (OperandScaling* const operand : operands) {
        if (row->of_amax && operand->rule != ScaleRule::amax)
            throw std::invalid_argument("only the rule amax has scales of any format, and rounds them as asked");
        row->set(*operand, value);
    }
}

void check_options(const ScalingRecipe& recipe) {
    for (const OperandScaling& operand : {recipe.input, recipe.weight, recipe.gradient}) check(operand);
    for (const std::optional<OperandScaling>& operand : {recipe.input_in_backward, recipe.weight_in_backward})
        if (operand) check(*operand);
}

} // namespace amp

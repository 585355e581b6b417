#include <ampscope/sim/program/layer_arithmetic.h>

#include <ampscope/formats/names.h>

#include <algorithm>
#include <fmt/format.h>
#include <stdexcept>

namespace amp {

namespace {

/// Changes one value of the scaling recipe's row.
void set_scaling(std::optional<ScalingRecipe>& scaling, std::string_view key, std::string_view value) {
    if (!scaling) throw std::invalid_argument(fmt::format("precision: scaling-{} needs a recipe before it", key));
    try {
        set_option(*scaling, key, value);
    } catch (const std::invalid_argument& error) {
        throw std::invalid_argument(fmt::format("precision: scaling-{}={}: {}", key, value, error.what()));
    }
}

} // namespace

op::MatmulArithmetic LayerArithmetic::product(const FormatSpec& a, const FormatSpec& b, bool backward) const {
    op::MatmulArithmetic result{.operands = operands, .operand_rounding = operand_rounding};
    const bool as_is = operands == format("fp32");
    for (const Accumulator& acc : backward ? backward_accumulators : accumulators)
        if (acc.takes(as_is ? a : operands) && acc.takes(as_is ? b : operands)) {
            result.accumulate = acc;
            break;
        }
    return result;
}

FormatSpec LayerArithmetic::sums() const {
    const auto chain = std::ranges::find(accumulators, Accumulation::chain, &Accumulator::method);
    return chain == accumulators.end() ? format("fp32") : chain->sum;
}

bool LayerArithmetic::set(std::string_view key, std::string_view value) {
    constexpr std::string_view recipe_part = "scaling-";
    if (key == "operands") {
        operands = tensor_format(key, value);
    } else if (key == "operand-rounding") {
        operand_rounding = parse_name<Rounding>("operand-rounding", rounding_names, value);
        if (operand_rounding == Rounding::stochastic)
            throw std::invalid_argument("precision: operand-rounding=stochastic: operands are read without randomness");
    } else if (key == "scaling") {
        scaling = value == "none" ? std::nullopt : std::optional(scaling_recipe(value));
    } else if (key.starts_with(recipe_part)) {
        set_scaling(scaling, key.substr(recipe_part.size()), value);
    } else if (key == "accumulate") {
        accumulators = backward_accumulators = amp::accumulators(value);
    } else if (key == "accumulate-forward") {
        accumulators = amp::accumulators(value);
    } else if (key == "accumulate-backward") {
        backward_accumulators = amp::accumulators(value);
    } else {
        return false;
    }
    return true;
}

FormatSpec tensor_format(std::string_view key, std::string_view value) {
    const FormatSpec f = format(value);
    if (!f.is_scale()) return f;
    throw std::invalid_argument(fmt::format("precision: {}={}: a scale format holds no tensor", key, value));
}

std::vector<Accumulator> accumulators(std::string_view text) {
    std::vector<Accumulator> list;
    for (std::string_view rest = text; list.empty() || !rest.empty();) {
        const std::size_t end = std::min(rest.find('+'), rest.size());
        list.push_back(accumulator(rest.substr(0, end)));
        rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    return list;
}

std::string names_of(std::span<const Accumulator> list) {
    std::string text;
    for (const Accumulator& acc : list) text += (text.empty() ? "" : "+") + std::string(acc.name);
    return text.empty() ? "fp32" : text;
}

} // namespace amp

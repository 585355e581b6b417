#include <ampscope/sim/program/precision.h>

#include <ampscope/formats/environment.h>

#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <set>
#include <stdexcept>

namespace amp {

namespace {

Precision amp_with(std::string_view low) {
    Precision p;
    p.autocast = {.enabled = true, .low = format(low)};
    if (low == "fp16") p.loss_scaler = loss_scaler("torch");
    return p;
}

Precision pure(std::string_view name, UpdateRounding update = UpdateRounding::nearest) {
    Precision p;
    const FormatSpec f = format(name);
    p.weights = p.activations = p.gradients = p.loss = p.master = p.m = p.v = f;
    p.update = update;
    return p;
}

Precision tf32(Rounding rounding) {
    Precision p;
    p.operands = format("tf32");
    p.operand_rounding = rounding;
    return p;
}

/// Weights, activations and gradients in FP16 beside FP32 master weights: Apex O2, Megatron, DeepSpeed.
Precision with_master(std::string_view name) {
    Precision p;
    p.weights = p.activations = p.gradients = format(name);
    if (name == "fp16") p.loss_scaler = loss_scaler("megatron");
    return p;
}

/// Linear layers in FP8 or narrower, by the recipe of the precision of that name; all else under autocast to BF16.
Precision scaled(std::string_view name) {
    Precision p = amp_with("bf16");
    p.scaling = *recipe_of_precision(name);
    return p;
}

/// DeepSeek-V3's recipe, with the optimizer's state in BF16, too.
Precision deepseek() {
    Precision p = scaled("deepseek");
    p.m = p.v = format("bf16");
    p.accumulators = p.backward_accumulators = {accumulator("hopper-wgmma-fp8")};
    return p;
}

/// MS-AMP's optimization level O2.
Precision ms_amp() {
    Precision p = scaled("ms-amp");
    p.scaled_state = {.weight = format("fp16"), .m = format("e4m3"), .v = format("fp16")};
    return p;
}

constexpr PrecisionRow precision_table[] = {
    {"fp32", "everything in FP32", [] { return Precision{}; }},
    {"tf32", "FP32, operands of matrix products rounded to TF32, ties away (cvt.rna)",
     [] { return tf32(Rounding::nearest_away); }},
    {"tf32-truncate", "FP32, operands of matrix products truncated to TF32 (wgmma)",
     [] { return tf32(Rounding::toward_zero); }},
    {"amp-fp16", "PyTorch autocast to FP16, loss scaling", [] { return amp_with("fp16"); }},
    {"amp-bf16", "PyTorch autocast to BF16", [] { return amp_with("bf16"); }},
    {"master-fp16", "FP16 but for master weights and optimizer in FP32, loss scaling (Apex O2, Megatron)",
     [] { return with_master("fp16"); }},
    {"master-bf16", "BF16 but for master weights and optimizer in FP32 (Megatron)", [] { return with_master("bf16"); }},
    {"pure-fp16", "model.half(): weights, gradients and optimizer in FP16", [] { return pure("fp16"); }},
    {"pure-bf16", "weights, gradients and optimizer in BF16", [] { return pure("bf16"); }},
    {"pure-bf16-stochastic", "pure-bf16, new weights rounded stochastically",
     [] { return pure("bf16", UpdateRounding::stochastic); }},
    {"pure-bf16-kahan", "pure-bf16, what rounding the weights loses is kept beside them",
     [] { return pure("bf16", UpdateRounding::kahan); }},
    {"fp8-delayed", "linear layers in FP8, scales from the amax of 1,024 steps (TransformerEngine), the rest amp-bf16",
     [] { return scaled("fp8-delayed"); }},
    {"fp8-current", "linear layers in FP8, a scale a tensor (TransformerEngine), the rest amp-bf16",
     [] { return scaled("fp8-current"); }},
    {"fp8-block", "linear layers in E4M3, scales for 1 x 128 and 128 x 128 (TransformerEngine), the rest amp-bf16",
     [] { return scaled("fp8-block"); }},
    {"mxfp8", "linear layers in MXFP8, a scale for 32 (TransformerEngine), the rest amp-bf16",
     [] { return scaled("mxfp8"); }},
    {"nvfp4", "linear layers in NVFP4, gradients rounded stochastically (TransformerEngine), the rest amp-bf16",
     [] { return scaled("nvfp4"); }},
    {"deepseek", "DeepSeek-V3: E4M3, scales for 1 x 128 and 128 x 128, Hopper's sums promoted every 128, m and v BF16",
     deepseek},
    {"ms-amp",
     "MS-AMP O2: linear layers in FP8, their master weights FP16, m E4M3, v FP16, a scale a tensor; use --optimizer "
     "lbadamw and --all-reduce-scaling ms-amp",
     ms_amp},
};

struct FormatKey {
    std::string_view name;
    FormatSpec& (*field)(Precision&);
};

constexpr FormatKey format_keys[] = {
    {"weights", [](Precision& p) -> FormatSpec& { return p.weights; }},
    {"activations", [](Precision& p) -> FormatSpec& { return p.activations; }},
    {"gradients", [](Precision& p) -> FormatSpec& { return p.gradients; }},
    {"loss", [](Precision& p) -> FormatSpec& { return p.loss; }},
    {"operands", [](Precision& p) -> FormatSpec& { return p.operands; }},
};

FormatSpec tensor_format(std::string_view key, std::string_view value) {
    const FormatSpec f = format(value);
    if (!f.is_scale()) return f;
    throw std::invalid_argument(fmt::format("precision: {}={}: a scale format holds no tensor", key, value));
}

int whole_number(std::string_view key, std::string_view text, int least, int most) {
    int n = least - 1;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
    if (error != std::errc() || end != text.data() + text.size() || n < least || n > most)
        throw std::invalid_argument(
            fmt::format("precision: scaling-{}={}: expected a whole number from {} to {}", key, text, least, most));
    return n;
}

/// Changes one value of the scaling recipe's row.
void set_scaling(Precision& p, std::string_view key, std::string_view value) {
    if (!p.scaling) throw std::invalid_argument(fmt::format("precision: scaling-{} needs a recipe before it", key));
    ScalingRecipe& recipe = *p.scaling;
    const auto forward = {&recipe.input, &recipe.weight};
    if (key == "forward") {
        for (OperandScaling* operand : forward) operand->element = format(value);
    } else if (key == "backward") {
        recipe.gradient.element = format(value);
    } else if (key == "rule") {
        for (OperandScaling* operand : {&recipe.input, &recipe.weight, &recipe.gradient})
            operand->rule = parse_name<ScaleRule>("scaling-rule", scale_rule_names, value);
    } else if (key == "margin" && recipe.delayed()) {
        recipe.margin = whole_number(key, value, 0, 100);
    } else if (key == "history" && recipe.delayed()) {
        recipe.history = whole_number(key, value, 1, 1 << 20);
    } else if (key == "amax" && recipe.delayed() && (value == "max" || value == "most-recent")) {
        recipe.most_recent = value == "most-recent";
    } else if (key == "reduce" && recipe.delayed() && (value == "on" || value == "off")) {
        recipe.reduces_amax = value == "on";
    } else {
        throw std::invalid_argument(fmt::format(
            "precision: scaling-{}={}: known are scaling-forward, scaling-backward (formats), scaling-rule, "
            "and for delayed scaling scaling-margin, scaling-history, scaling-amax (max, most-recent), scaling-reduce "
            "(on, off)",
            key, value));
    }
}

/// Sets master, m or v to FORMAT or FORMAT:tensor. Returns whether the key is one of them.
bool set_state(Precision& p, std::string_view key, std::string_view value) {
    struct State {
        std::string_view key;
        FormatSpec& plain;
        std::optional<FormatSpec>& scaled;
    };
    for (const State& s : {State{"master", p.master, p.scaled_state.weight}, State{"m", p.m, p.scaled_state.m},
                           State{"v", p.v, p.scaled_state.v}}) {
        if (s.key != key) continue;
        constexpr std::string_view suffix = ":tensor";
        const bool scales = value.ends_with(suffix);
        const FormatSpec f = tensor_format(key, scales ? value.substr(0, value.size() - suffix.size()) : value);
        s.plain = scales ? format("fp32") : f;
        s.scaled.reset();
        if (scales) s.scaled = f;
        return true;
    }
    return false;
}

void set(Precision& p, std::string_view key, std::string_view value) {
    if (key == "update") {
        p.update = parse_name<UpdateRounding>("update", update_rounding_names, value);
        return;
    }
    if (key == "scaling") {
        p.scaling.reset();
        if (value != "none") p.scaling = scaling_recipe(value);
        return;
    }
    if (key.starts_with("scaling-")) return set_scaling(p, key.substr(std::string_view("scaling-").size()), value);
    if (key == "scaler") {
        p.loss_scaler = loss_scaler(value);
        return;
    }
    if (key.starts_with("accumulate")) {
        const std::string_view where = key.substr(std::string_view("accumulate").size());
        if (where.empty() || where == "-forward") p.accumulators = accumulators(value);
        if (where.empty() || where == "-backward") p.backward_accumulators = accumulators(value);
        if (where.empty() || where == "-forward" || where == "-backward") return;
    }
    if (set_state(p, key, value)) return;
    const FormatKey& known = find_row("key of a precision", format_keys, key,
                                      ", master, m, v, accumulate, accumulate-forward, accumulate-backward, scaling, "
                                      "scaling-..., update, scaler");
    const FormatSpec f = tensor_format(key, value);
    if (p.autocast.enabled && (key == "weights" || key == "activations" || key == "gradients" || key == "loss"))
        throw std::invalid_argument(fmt::format("precision: autocast decides about {}: leave it out", key));
    known.field(p) = f;
}

} // namespace

std::span<const PrecisionRow> precisions() { return precision_table; }

op::MatmulArithmetic Precision::product(const FormatSpec& a, const FormatSpec& b, bool backward) const {
    op::MatmulArithmetic result{.operands = operands, .operand_rounding = operand_rounding};
    const bool as_is = operands == format("fp32");
    for (const Accumulator& acc : backward ? backward_accumulators : accumulators)
        if (acc.takes(as_is ? a : operands) && acc.takes(as_is ? b : operands)) {
            result.accumulate = acc;
            break;
        }
    return result;
}

bool Precision::is_unscaled(std::string_view scope) const {
    return std::ranges::any_of(unscaled, [&](const std::string& module) { return scope.starts_with(module + "."); });
}

bool Precision::may_use(const Accumulator& acc) const {
    if (scaling && acc.takes(scaling->input.element) && acc.takes(scaling->weight.element)) return true;
    if (operands != format("fp32")) return acc.takes(operands);
    return autocast.enabled ? acc.takes(autocast.low) : acc.takes(weights) && acc.takes(activations);
}

FormatSpec Precision::sums() const {
    const auto chain = std::ranges::find(accumulators, Accumulation::chain, &Accumulator::method);
    return chain == accumulators.end() ? format("fp32") : chain->sum;
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

Precision precision(std::string_view text) {
    const FloatEnvironment environment;
    Precision p;
    bool first = true;
    std::set<std::string_view> keys;
    for (std::string_view rest = text; first || !rest.empty(); first = false) {
        const std::size_t end = std::min(rest.find(','), rest.size());
        const std::string_view item = rest.substr(0, end);
        rest.remove_prefix(std::min(end + 1, rest.size()));
        if (const std::size_t equals = item.find('='); equals != std::string_view::npos) {
            const std::string_view key = item.substr(0, equals);
            if (!keys.insert(key).second)
                throw std::invalid_argument(fmt::format("precision {}: {}= is given twice", text, key));
            set(p, key, item.substr(equals + 1));
            continue;
        }
        constexpr std::string_view others = ", or [PRESET,]key=format,...";
        if (!first) throw_unknown("precision", item, names_of_rows(precision_table) + std::string(others));
        p = find_row("precision", precision_table, item, others).make();
    }
    p.name = text;
    return p;
}

} // namespace amp

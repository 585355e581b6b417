// The part of precision.h about layers that differ from the rest of the network.
#include <ampscope/sim/program/precision.h>

#include <ampscope/formats/names.h>

#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fnmatch.h>
#include <map>
#include <regex>
#include <stdexcept>
#include <utility>

namespace amp {

namespace {

/// Whether layers can have what the preset has: how operands are read, in tensors of FP32 or as autocast casts them.
bool is_of_layers(const Precision& p) { return p.scaling || (!p.autocast.enabled && p.weights == format("fp32")); }

std::optional<Precision> preset_of_layers(std::string_view name) {
    const auto row = std::ranges::find(precisions(), name, &PrecisionRow::name);
    if (row == precisions().end()) return std::nullopt;
    const Precision p = row->make();
    return is_of_layers(p) ? std::optional(p) : std::nullopt;
}

FormatSpec format_of_layer(std::string_view name) {
    try {
        return tensor_format("operands", name);
    } catch (const std::invalid_argument&) {
        std::string known;
        for (const PrecisionRow& row : precisions())
            if (is_of_layers(row.make())) known += std::string(row.name) + ", ";
        throw_unknown("format or recipe of a layer", name, known + "and formats of tensors, such as bf16");
    }
}

/// The preset or format of that name as how a layer reads operands.
Precision base_of(std::string_view name) {
    if (const auto preset = preset_of_layers(name)) return *preset;
    const FormatSpec operands = format_of_layer(name);
    if (const auto preset = preset_of_layers(operands.name)) return *preset; // FP32 by another name, say
    Precision p;
    p.operands = operands;
    p.autocast.enabled = true; // if the network has it
    return p;
}

void set_base(LayerArithmetic& layer, std::string_view name) {
    const Precision base = base_of(name);
    layer.operands = base.operands;
    layer.operand_rounding = base.operand_rounding;
    layer.scaling = base.scaling;
    layer.keeps_wide = !base.scaling;
    layer.autocast_off = !base.autocast.enabled;
    if (base.accumulators.empty()) return;
    layer.accumulators = base.accumulators;
    layer.backward_accumulators = base.backward_accumulators;
}

void set_policy_key(LayerArithmetic& layer, std::string_view key, std::string_view value) {
    if (key == "autocast") {
        constexpr std::array<std::string_view, 2> words = {"on", "off"};
        layer.autocast_off = parse_name<bool>("autocast", words, value);
        return;
    }
    if (!layer.set(key, value))
        throw_unknown("key of a layer", key, fmt::format("autocast, {}", LayerArithmetic::keys));
    if (key == "scaling") layer.keeps_wide = !layer.scaling;
}

/// What a policy changes. `everywhere`: it also covers layers without a recipe, in which parts of recipes say nothing.
void apply_policy(const LayerPolicy& policy, bool everywhere, LayerArithmetic& layer) {
    try {
        read_keys(
            policy.text,
            [&](std::string_view name, bool first) {
                if (!first) throw std::invalid_argument(fmt::format("'{}' has to come first", name));
                set_base(layer, name);
            },
            [&](std::string_view key, std::string_view value) {
                if (everywhere && !layer.scaling && key.starts_with("scaling-")) return;
                set_policy_key(layer, key, value);
            });
        if (layer.scaling) check_options(*layer.scaling);
    } catch (const std::invalid_argument& error) {
        throw std::invalid_argument(fmt::format("layer {}:{}: {}", policy.modules, policy.text, error.what()));
    }
}

/// The regular expression between the slashes of a policy's modules.
std::regex expression_of(const std::string& modules) {
    try {
        return std::regex(modules.substr(1, modules.size() - 2));
    } catch (const std::regex_error&) {
        throw std::invalid_argument(fmt::format("layer {}: not a regular expression", modules));
    }
}

bool is_number(std::string_view text) {
    return !text.empty() && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

/// {"h", 3} of "h.3"; an index of -1 for names that have no number at their end, or one before that.
std::pair<std::string, int> numbered(const std::string& module) {
    const std::size_t dot = module.rfind('.');
    const std::string last = module.substr(dot == std::string::npos ? 0 : dot + 1),
                      list = module.substr(0, dot == std::string::npos ? 0 : dot);
    for (std::size_t begin = 0; begin < list.size();) {
        const std::size_t end = std::min(list.find('.', begin), list.size());
        if (is_number(std::string_view(list).substr(begin, end - begin))) return {"", -1};
        begin = end + 1;
    }
    return is_number(last) && last.size() < 7 ? std::pair(list, std::stoi(last)) : std::pair(std::string(), -1);
}

/// Whether the scope is in a module that `modules` names. The network itself is the module "".
bool covers(const std::string& modules, std::string_view scope) {
    if (names_module(modules, "")) return true;
    for (std::size_t dot = scope.find('.'); dot != std::string_view::npos; dot = scope.find('.', dot + 1))
        if (names_module(modules, std::string(scope.substr(0, dot)))) return true;
    return false;
}

/// The arithmetic of a network whose modules are called as the policy calls them.
LayerArithmetic arithmetic_of(const Precision& p, const LayerPolicy& policy) { return p.at(policy.modules + "."); }

} // namespace

LayerArithmetic Precision::at(std::string_view scope) const {
    LayerArithmetic layer = *this;
    for (const LayerPolicy& policy : layers)
        if (covers(policy.modules, scope)) apply_policy(policy, true, layer);
    if (serving.replaces_recipes) layer.scaling = layer.keeps_wide ? std::nullopt : scaling;
    return layer;
}

void Precision::add_layer(std::string modules, std::string text) {
    LayerPolicy policy{std::move(modules), std::move(text)};
    LayerArithmetic layer = arithmetic_of(*this, policy);
    apply_policy(policy, false, layer);
    layers.push_back(std::move(policy));
}

bool Precision::has_recipe() const {
    return scaling || std::ranges::any_of(layers, [&](const LayerPolicy& policy) {
               return arithmetic_of(*this, policy).scaling.has_value();
           });
}

bool Precision::may_use(const Accumulator& acc) const {
    const auto uses = [&](const LayerArithmetic& layer) {
        const std::optional<ScalingRecipe>& recipe = layer.scaling;
        if (recipe && acc.takes(recipe->input.element) && acc.takes(recipe->weight.element)) return true;
        if (layer.operands != format("fp32")) return acc.takes(layer.operands);
        const bool casts = autocast.enabled && !layer.autocast_off;
        return casts ? acc.takes(autocast.low) : acc.takes(weights) && acc.takes(activations);
    };
    return uses(*this) ||
           std::ranges::any_of(layers, [&](const LayerPolicy& policy) { return uses(arithmetic_of(*this, policy)); });
}

std::vector<LayerPolicy> Precision::layers_in_force() const {
    std::vector<LayerPolicy> result;
    for (const LayerPolicy& policy : layers)
        if (policy.text == "autocast=off" ? autocast.enabled : policy.text != "scaling=none" || has_recipe())
            result.push_back(policy);
    return result;
}

std::vector<std::string> expand_blocks(const std::string& modules, std::span<const std::string> known) {
    const bool first = modules.starts_with("first-");
    std::size_t wanted = 0;
    if (!first && !modules.starts_with("last-")) return {modules};
    const std::string_view digits = std::string_view(modules).substr(modules.find('-') + 1);
    if (!is_number(digits) || digits.size() > 6) return {modules};
    std::from_chars(digits.data(), digits.data() + digits.size(), wanted);
    std::map<std::string, std::map<int, std::string>> lists; // by what comes before the number
    for (const std::string& module : known)
        if (const auto [list, index] = numbered(module); index >= 0) lists[list][index] = module;
    if (lists.empty()) throw std::invalid_argument(fmt::format("layer {}: there are no numbered modules", modules));
    std::vector<std::string> named;
    for (const auto& [list, blocks] : lists) {
        const std::size_t count = std::min(wanted, blocks.size());
        auto block = first ? blocks.begin() : std::prev(blocks.end(), static_cast<std::ptrdiff_t>(count));
        for (std::size_t i = 0; i < count; ++i, ++block) named.push_back(block->second);
    }
    return named;
}

bool names_module(const std::string& modules, const std::string& module) {
    if (modules.size() > 2 && modules.front() == '/' && modules.back() == '/')
        return std::regex_match(module, expression_of(modules));
    return modules == module || ::fnmatch(modules.c_str(), module.c_str(), FNM_NOESCAPE) == 0;
}

void check_layers(const Precision& precision, std::span<const std::string> modules) {
    for (const LayerPolicy& policy : precision.layers) {
        const auto is_named = [&](const std::string& module) { return names_module(policy.modules, module); };
        if (policy == last_layer_unscaled() || std::ranges::any_of(modules, is_named)) continue;
        const std::string_view option = policy.text == "autocast=off"   ? "autocast-off"
                                        : policy.text == "scaling=none" ? "scaling-off"
                                                                        : "layer";
        throw_unknown(fmt::format("module of {}", option), policy.modules, fmt::format("{}", fmt::join(modules, ", ")));
    }
    for (const std::string& module : modules) static_cast<void>(precision.at(module + "."));
}

} // namespace amp

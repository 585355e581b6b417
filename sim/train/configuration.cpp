#include <ampscope/sim/train/configuration.h>

#include <ampscope/sim/base/fingerprint.h>
#include <ampscope/sim/io/run_facts.h>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <optional>
#include <unordered_map>

namespace amp {

namespace {

using Json = nlohmann::ordered_json;

template <class Enum, std::size_t N>
std::string_view word(const std::array<std::string_view, N>& names, Enum value) {
    return names[static_cast<std::size_t>(value)];
}

/// Visits the settings of a model, in the order of run.json: visit(key, member), or visit(key, member, names) for the
/// member of an enumeration.
template <class Model, class Visit>
void for_each_setting(Model& m, const Visit& visit) {
    visit("name", m.name);
    visit("width", m.width);
    visit("depth", m.depth);
    visit("heads", m.heads);
    visit("dropout", m.dropout);
    visit("activation", m.activation, op::activation_names);
    visit("norm", m.norm, op::norm_names);
}

/// The settings that run.json states only where they are not the default, as it did before they were there.
template <class Model, class Visit>
void for_each_later_setting(Model& m, const Visit& visit) {
    visit("norm_eps", m.norm_eps, ModelOptions{}.norm_eps);
    visit("norm_groups", m.norm_groups, ModelOptions{}.norm_groups);
    visit("kv_heads", m.kv_heads, ModelOptions{}.kv_heads);
    visit("hidden", m.hidden, ModelOptions{}.hidden);
    visit("tied", m.tied, ModelOptions{}.tied);
    visit("fused_projections", m.fused_projections, ModelOptions{}.fused_projections);
    visit("rope_theta", m.rope_theta, ModelOptions{}.rope_theta);
    visit("attention", m.attention, ModelOptions{}.attention);
    visit("label_smoothing", m.label_smoothing, ModelOptions{}.label_smoothing);
    visit("z_loss", m.z_loss, ModelOptions{}.z_loss);
}

Json json_of(const ModelOptions& m) {
    Json json;
    for_each_setting(m, [&](const char* key, const auto& value, const auto&... names) {
        if constexpr (sizeof...(names) == 0) json[key] = value;
        else json[key] = word(names..., value);
    });
    for_each_later_setting(m, [&](const char* key, const auto& value, const auto& usual) {
        if (value != usual) json[key] = value;
    });
    return json;
}

ModelOptions model_of(const Json& json) {
    ModelOptions m;
    for_each_setting(m, [&]<class Member>(const char* key, Member& value, const auto&... names) {
        if constexpr (sizeof...(names) == 0) value = json.at(key).template get<Member>();
        else value = parse_name<Member>(key, names..., json.at(key).template get<std::string>());
    });
    for_each_later_setting(m, [&]<class Member>(const char* key, Member& value, const Member& usual) {
        value = json.contains(key) ? json.at(key).template get<Member>() : usual;
    });
    return m;
}

Json json_of(const OptimizerOptions& o) {
    Json json = {{"kind", word(optimizer_kind_names, o.kind)},
                 {"order", word(optimizer_order_names, o.order)},
                 {"lr", o.learning_rate},
                 {"beta1", o.beta1},
                 {"beta2", o.beta2},
                 {"eps", o.eps},
                 {"weight_decay", o.weight_decay},
                 {"momentum", o.momentum},
                 {"dampening", o.dampening},
                 {"nesterov", o.nesterov},
                 {"contract", o.contract}};
    if (facts_of(o.kind).orthogonalizes)
        json.update({{"rate_scale", word(rate_scale_names, o.rate_scale)}, {"adamw_lr", o.adamw().learning_rate}});
    if (facts_of(o.kind).factors)
        json.update({{"beta2_decay", o.beta2_decay}, {"eps2", o.eps2}, {"update_clip", o.update_clip}});
    return json;
}

/// The entry for a scaler: its name and the options that a run.json states; the others are the row's.
Json json_of(const LossScalerRow& row) {
    const LossScalerOptions& o = row.options;
    return {{"name", row.name},
            {"init_scale", o.init_scale},
            {"growth_factor", o.growth_factor},
            {"backoff_factor", o.backoff_factor},
            {"growth_interval", o.growth_interval},
            {"hysteresis", o.hysteresis},
            {"unscale_by_updated_scale", o.unscale_by_updated_scale}};
}

Json json_of(const std::vector<LayerPolicy>& layers) {
    Json rows = Json::array();
    for (const LayerPolicy& row : layers) rows.push_back({{"modules", row.modules}, {"arithmetic", row.text}});
    return rows;
}

void compare(const Json& a, const Json& b, const DifferenceSink& sink, const Json::json_pointer& at) {
    if (a.is_object() && b.is_object()) {
        std::unordered_map<std::string_view, const Json*> in_a, in_b; // an ordered_json searches for each key
        for (const auto& [key, value] : a.items()) in_a.emplace(key, &value);
        for (const auto& [key, value] : b.items()) in_b.emplace(key, &value);
        for (const auto& [key, value] : a.items())
            if (const auto other = in_b.find(key); other == in_b.end()) sink((at / key).to_string(), &value, nullptr);
            else compare(value, *other->second, sink, at / key);
        for (const auto& [key, value] : b.items())
            if (!in_a.contains(key)) sink((at / key).to_string(), nullptr, &value);
    } else if (a.is_array() && b.is_array()) {
        for (std::size_t i = 0; i < std::max(a.size(), b.size()); ++i)
            if (i >= b.size()) sink((at / i).to_string(), &a[i], nullptr);
            else if (i >= a.size()) sink((at / i).to_string(), nullptr, &b[i]);
            else compare(a[i], b[i], sink, at / i);
    } else if (a != b) {
        sink(at.to_string(), &a, &b);
    }
}

} // namespace

Json precision_json(const Precision& p) {
    Json json = {{"name", p.name}};
    if (p.autocast.enabled)
        json["autocast"] = {{"format", p.autocast.low.name},
                            {"policy", word(autocast_policy_names, p.autocast.policy)},
                            {"weight_cache", p.weight_cache},
                            {"backward_under_autocast", p.backward_under_autocast}};
    else
        json["formats"] = {{"weights", p.weights.name},
                           {"activations", p.activations.name},
                           {"gradients", p.gradients.name},
                           {"loss", p.loss.name}};
    const auto state = [](const FormatSpec& plain, const std::optional<ScaledFormat>& scaled) {
        return scaled ? scaled->name() : std::string(plain.name);
    };
    json["state_formats"] = {{"master", state(p.master, p.scaled_state.weight)},
                             {"m", state(p.m, p.scaled_state.m)},
                             {"v", state(p.v, p.scaled_state.v)}};
    json["accumulate"] = names_of(p.accumulators);
    if (p.backward_accumulators != p.accumulators) json["accumulate_backward"] = names_of(p.backward_accumulators);
    // the name of the recipe implies the rest
    if (p.scaling) json["scaling"] = {{"recipe", p.scaling->name}};
    json["operands"] = p.operands.name;
    json["operand_rounding"] = name_of(p.operand_rounding);
    json["update"] = word(update_rounding_names, p.update);
    if (p.update_random_bits != 32) json["update_random_bits"] = p.update_random_bits;
    if (const std::vector<LayerPolicy> layers = p.layers_in_force(); p.has_recipe() || !layers.empty())
        json["layers"] = json_of(layers);
    return json;
}

Json data_of(const Dataset& d) {
    return {{"name", d.name},         {"fingerprint", d.fingerprint}, {"input", d.input},
            {"target", d.target},     {"vocabulary", d.vocabulary},   {"classes", d.classes},
            {"training", d.training}, {"validation", d.validation}};
}

Json configuration_of(const TrainOptions& o, const Dataset& data) {
    Json all_reduce = {{"order", word(all_reduce_order_names, o.all_reduce.order)},
                       {"divide", word(all_reduce_division_names, o.all_reduce.division)},
                       {"format", o.all_reduce.payload().name()}};
    if (o.all_reduce.scaled) all_reduce["scaling"] = "ms-amp";
    Json json = {{"model", json_of(o.model)},
                 {"precision", precision_json(o.precision)},
                 {"optimizer", json_of(o.optimizer)},
                 {"warmup", o.warmup},
                 {"loss_scaler", json_of(o.precision.loss_scaler)},
                 {"loss_weight", o.loss_weight},
                 {"clip", o.clip},
                 {"clip_before_unscale", o.clip_before_unscale},
                 {"batch", o.batch},
                 {"micro_batches", o.micro_batches},
                 {"replicas", o.replicas},
                 {"all_reduce", all_reduce},
                 {"seed", o.seed},
                 {"data", data_of(data)}};
    if (o.shard.is_sharded())
        json["shard"] = {{"sharding", o.shard.row().name},
                         {"gather", o.shard.gather ? std::string(o.shard.gather->name()) : "master"}};
    return json;
}

/// A model's attention in one spelling; a text that is none stays.
void spell_attention(Json& configuration) {
    const Json::json_pointer at("/model/attention");
    if (!configuration.contains(at) || !configuration[at].is_string()) return;
    try {
        configuration[at] = op::canonical_attention(configuration[at].get<std::string>());
    } catch (const std::invalid_argument&) { // whoever reads it says so
    }
}

Json as_written_now(Json configuration) {
    spell_attention(configuration);
    if (!configuration.is_object() || !configuration.contains("precision")) return configuration;
    Json& p = configuration["precision"];
    std::vector<LayerPolicy> layers;
    bool is_old = false;
    for (const auto& [key, text] : {std::pair("scaling", "scaling=none"), {"autocast", "autocast=off"}}) {
        if (!p.is_object() || !p.contains(key) || !p[key].is_object() || !p[key].contains("off")) continue;
        for (const Json& module : p[key]["off"])
            if (module.is_string()) layers.push_back({module.get<std::string>(), text});
        p[key].erase("off");
        is_old = true;
    }
    if (is_old && (p.contains("scaling") || !layers.empty())) p["layers"] = json_of(layers);
    return configuration;
}

std::string command_options(const Json& configuration) {
    constexpr std::pair<const char*, const char*> options[] = {{"--width", "/model/width"},
                                                               {"--depth", "/model/depth"},
                                                               {"--heads", "/model/heads"},
                                                               {"--dropout", "/model/dropout"},
                                                               {"--activation", "/model/activation"},
                                                               {"--norm", "/model/norm"},
                                                               {"--kv-heads", "/model/kv_heads"},
                                                               {"--hidden", "/model/hidden"},
                                                               {"--tied", "/model/tied"},
                                                               {"--fused-projections", "/model/fused_projections"},
                                                               {"--rope-theta", "/model/rope_theta"},
                                                               {"--norm-eps", "/model/norm_eps"},
                                                               {"--norm-groups", "/model/norm_groups"},
                                                               {"--attention", "/model/attention"},
                                                               {"--label-smoothing", "/model/label_smoothing"},
                                                               {"--z-loss", "/model/z_loss"},
                                                               {"--batch", "/batch"},
                                                               {"--micro-batches", "/micro_batches"},
                                                               {"--replicas", "/replicas"},
                                                               {"--lr", "/optimizer/lr"},
                                                               {"--warmup", "/warmup"},
                                                               {"--loss-weight", "/loss_weight"},
                                                               {"--clip", "/clip"}};
    const std::string name = text_at(configuration, "/model/name");
    const auto known = std::ranges::find(models(), name, &ModelRow::name);
    if (known == models().end()) return "";
    const Json usual = configuration_of({.model = known->defaults}, Dataset{});
    std::string text = " --model " + name;
    for (const auto& [option, pointer] : options) {
        const Json::json_pointer at(pointer);
        if (!configuration.contains(at) || (usual.contains(at) && configuration.at(at) == usual.at(at))) continue;
        const Json& value = configuration.at(at);
        if (value.is_number()) text += fmt::format(" {} {}", option, value.dump());
        else if (value.is_string()) text += fmt::format(" {} {}", option, value.get<std::string>());
        else if (value == true) text += fmt::format(" {}", option);
    }
    return text;
}

TrainOptions options_of(const Json& configuration) {
    const Json now = as_written_now(configuration);
    const Json& p = now.at("precision");
    TrainOptions o;
    o.model = model_of(now.at("model"));
    o.precision = precision(p.at("name").get<std::string>());
    if (p.contains("autocast")) {
        const Json& a = p.at("autocast");
        o.precision.autocast.policy =
            parse_name<AutocastPolicy>("policy", autocast_policy_names, a.at("policy").get<std::string>());
        o.precision.weight_cache = a.at("weight_cache");
    }
    if (p.contains("layers")) {
        o.precision.layers.clear();
        for (const Json& row : p.at("layers")) o.precision.add_layer(row.at("modules"), row.at("arithmetic"));
        if (!o.precision.has_recipe()) // then run.json does not tell what no recipe scales
            o.precision.layers.insert(o.precision.layers.begin(), last_layer_unscaled());
    }
    o.batch = now.at("batch");
    o.seed = now.at("seed");
    return o;
}

void for_each_difference(const Json& a, const Json& b, const DifferenceSink& sink) {
    compare(as_written_now(a), as_written_now(b), sink, Json::json_pointer());
}

std::string difference(const Json& a, const Json& b) {
    std::optional<std::string> first;
    for_each_difference(a, b, [&](const std::string& at, const Json*, const Json*) {
        if (!first) first = at;
    });
    return first.value_or("");
}

std::string fingerprint_of(const Trainer& trainer) {
    Fingerprint fingerprint;
    for (const TensorId id : trainer.state_tensors()) fingerprint.add(std::as_bytes(trainer.backend()[id]));
    const Trainer::State state = trainer.state();
    fingerprint.add(std::as_bytes(std::span(&state.updates, 1)));
    fingerprint.add(std::as_bytes(std::span(&state.scaler.scale, 1)));
    fingerprint.add(std::as_bytes(std::span(&state.scaler.growth_tracker, 1)));
    return fingerprint.text();
}

} // namespace amp

#include <ampscope/sim/io/run_facts.h>

#include <array>
#include <nlohmann/json.hpp>
#include <variant>

namespace amp {

namespace {

using Groups = std::map<std::string, std::size_t>;
using Member =
    std::variant<std::monostate, std::string RunFacts::*, std::optional<double> RunFacts::*, Groups RunFacts::*>;

struct Key {
    const char* pointer;
    RunWriter writer;
    Member member{}; ///< where run_facts() puts the value, if it reads it
};

constexpr RunWriter trainer = RunWriter::trainer, recorder = RunWriter::recorder, both = RunWriter::both;

constexpr std::array keys = {
    Key{"/schema_version", both},
    Key{"/tool", both, &RunFacts::tool},
    Key{"/version", both, &RunFacts::version},
    Key{"/torch", recorder},
    Key{"/model/name", both, &RunFacts::model},
    Key{"/model/width", trainer},
    Key{"/model/depth", trainer},
    Key{"/model/heads", trainer},
    Key{"/model/dropout", trainer},
    Key{"/model/activation", trainer},
    Key{"/model/norm", trainer},
    Key{"/model/norm_eps", trainer},
    Key{"/model/norm_groups", trainer},
    Key{"/model/kv_heads", trainer},
    Key{"/model/hidden", trainer},
    Key{"/model/tied", trainer},
    Key{"/model/fused_projections", trainer},
    Key{"/model/rope_theta", trainer},
    Key{"/model/attention", trainer},
    Key{"/model/label_smoothing", trainer},
    Key{"/model/z_loss", trainer},
    Key{"/model/parameters", recorder},
    Key{"/precision/name", both, &RunFacts::precision},
    Key{"/precision/autocast/format", both, &RunFacts::autocast},
    Key{"/precision/autocast/policy", both},
    Key{"/precision/autocast/weight_cache", both},
    Key{"/precision/autocast/backward_under_autocast", both},
    Key{"/precision/formats/weights", both},
    Key{"/precision/formats/activations", both, &RunFacts::activation_format},
    Key{"/precision/formats/gradients", both, &RunFacts::gradient_format},
    Key{"/precision/formats/loss", both},
    Key{"/precision/state_formats/master", both},
    Key{"/precision/state_formats/m", both},
    Key{"/precision/state_formats/v", both},
    Key{"/precision/accumulate", both},
    Key{"/precision/accumulate_backward", both},
    Key{"/precision/scaling/recipe", both, &RunFacts::recipe},
    Key{"/precision/operands", both, &RunFacts::operands},
    Key{"/precision/operand_rounding", both},
    Key{"/precision/update", both},
    Key{"/precision/layers", both},
    Key{"/optimizer/kind", both, &RunFacts::optimizer},
    Key{"/optimizer/order", trainer, &RunFacts::optimizer_order},
    Key{"/optimizer/lr", both, &RunFacts::lr},
    Key{"/optimizer/beta1", both, &RunFacts::beta1},
    Key{"/optimizer/beta2", both, &RunFacts::beta2},
    Key{"/optimizer/eps", both, &RunFacts::eps},
    Key{"/optimizer/weight_decay", both, &RunFacts::weight_decay},
    Key{"/optimizer/momentum", both},
    Key{"/optimizer/dampening", trainer},
    Key{"/optimizer/nesterov", trainer},
    Key{"/optimizer/contract", trainer},
    Key{"/optimizer/rate_scale", trainer},
    Key{"/optimizer/adamw_lr", trainer},
    Key{"/optimizer/beta2_decay", trainer},
    Key{"/optimizer/eps2", trainer},
    Key{"/optimizer/update_clip", trainer},
    Key{"/optimizer/groups", recorder, &RunFacts::groups},
    Key{"/warmup", trainer},
    Key{"/loss_scaler/name", both, &RunFacts::loss_scaler},
    Key{"/loss_scaler/init_scale", both},
    Key{"/loss_scaler/growth_factor", both},
    Key{"/loss_scaler/backoff_factor", both},
    Key{"/loss_scaler/growth_interval", both},
    Key{"/loss_scaler/hysteresis", trainer},
    Key{"/loss_scaler/unscale_by_updated_scale", trainer},
    Key{"/loss_weight", trainer},
    Key{"/clip", trainer},
    Key{"/clip_before_unscale", trainer},
    Key{"/batch", trainer},
    Key{"/micro_batches", trainer},
    Key{"/replicas", trainer},
    Key{"/all_reduce/order", trainer},
    Key{"/all_reduce/divide", trainer},
    Key{"/all_reduce/format", trainer},
    Key{"/all_reduce/scaling", trainer},
    Key{"/shard/sharding", trainer},
    Key{"/shard/gather", trainer},
    Key{"/seed", both, &RunFacts::seed},
    Key{"/data/name", trainer, &RunFacts::data},
    Key{"/data/fingerprint", trainer},
    Key{"/data/input", trainer},
    Key{"/data/target", trainer},
    Key{"/data/vocabulary", trainer},
    Key{"/data/classes", trainer},
    Key{"/data/training", trainer},
    Key{"/data/validation", trainer, &RunFacts::validation},
    Key{"/parameters", trainer},
    Key{"/recording/gradients_every", trainer},
    Key{"/recording/every", recorder},
    Key{"/recording/activations", both},
    Key{"/recording/state", trainer},
    Key{"/recording/replicas", trainer},
    Key{"/recording/statistics_every", trainer},
    Key{"/recording/departure", trainer},
    Key{"/recording/reference", trainer},
    Key{"/recording/weights", recorder},
    Key{"/recording/store", recorder},
    Key{"/ranks/rank", recorder},
    Key{"/ranks/of", recorder},
    Key{"/ranks/merged", recorder, &RunFacts::merged_ranks},
    Key{"/ranks/weights", recorder},
    Key{"/ranks/shards", recorder},
};

constexpr auto public_keys = [] {
    std::array<RunKey, keys.size()> all{};
    for (std::size_t i = 0; i < keys.size(); ++i) all[i] = {keys[i].pointer, keys[i].writer};
    return all;
}();

Groups groups_at(const nlohmann::ordered_json& json, const std::string& pointer) {
    Groups groups;
    const nlohmann::ordered_json::json_pointer at(pointer);
    if (!json.contains(at) || !json[at].is_object()) return groups;
    for (const auto& [parameter, group] : json[at].items())
        if (group.is_number_unsigned()) groups[parameter] = group.get<std::size_t>();
    return groups;
}

} // namespace

RunFacts run_facts(const nlohmann::ordered_json& configuration) {
    RunFacts result;
    for (const Key& key : keys) {
        if (const auto* text = std::get_if<std::string RunFacts::*>(&key.member))
            result.** text = text_at(configuration, key.pointer);
        else if (const auto* number = std::get_if<std::optional<double> RunFacts::*>(&key.member))
            result.** number = number_at(configuration, key.pointer);
        else if (const auto* groups = std::get_if<Groups RunFacts::*>(&key.member))
            result.** groups = groups_at(configuration, key.pointer);
    }
    return result;
}

std::string_view name_of(RunWriter writer) {
    switch (writer) {
    case RunWriter::trainer: return "trainer";
    case RunWriter::recorder: return "recorder";
    case RunWriter::both: return "both";
    }
    return "";
}

std::span<const RunKey> run_keys() { return public_keys; }

std::string text_at(const nlohmann::ordered_json& json, const std::string& pointer) {
    const nlohmann::ordered_json::json_pointer at(pointer);
    return json.contains(at) && json[at].is_string() ? json[at].get<std::string>() : "";
}

std::optional<double> number_at(const nlohmann::ordered_json& json, const std::string& pointer) {
    const nlohmann::ordered_json::json_pointer at(pointer);
    return json.contains(at) && json[at].is_number() ? std::optional(json[at].get<double>()) : std::nullopt;
}

} // namespace amp

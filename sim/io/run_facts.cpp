#include <ampscope/sim/io/run_facts.h>

#include <array>
#include <nlohmann/json.hpp>
#include <variant>

namespace amp {

namespace {

struct Fact {
    const char* pointer;
    std::variant<std::string RunFacts::*, std::optional<double> RunFacts::*> member;
};

constexpr std::array facts = {
    Fact{"/tool", &RunFacts::tool},
    Fact{"/version", &RunFacts::version},
    Fact{"/model/name", &RunFacts::model},
    Fact{"/data/name", &RunFacts::data},
    Fact{"/precision/name", &RunFacts::precision},
    Fact{"/precision/scaling/recipe", &RunFacts::recipe},
    Fact{"/precision/autocast/format", &RunFacts::autocast},
    Fact{"/precision/formats/activations", &RunFacts::activation_format},
    Fact{"/precision/formats/gradients", &RunFacts::gradient_format},
    Fact{"/precision/operands", &RunFacts::operands},
    Fact{"/loss_scaler/name", &RunFacts::loss_scaler},
    Fact{"/optimizer/kind", &RunFacts::optimizer},
    Fact{"/optimizer/order", &RunFacts::optimizer_order},
    Fact{"/optimizer/lr", &RunFacts::lr},
    Fact{"/optimizer/beta1", &RunFacts::beta1},
    Fact{"/optimizer/beta2", &RunFacts::beta2},
    Fact{"/optimizer/eps", &RunFacts::eps},
    Fact{"/optimizer/weight_decay", &RunFacts::weight_decay},
    Fact{"/seed", &RunFacts::seed},
    Fact{"/data/validation", &RunFacts::validation},
};

} // namespace

RunFacts run_facts(const nlohmann::ordered_json& configuration) {
    RunFacts result;
    for (const auto& [pointer, member] : facts) {
        if (const auto* text = std::get_if<std::string RunFacts::*>(&member))
            result.** text = text_at(configuration, pointer);
        else result.*std::get<std::optional<double> RunFacts::*>(member) = number_at(configuration, pointer);
    }
    return result;
}

std::span<const char* const> run_fact_pointers() {
    static constexpr auto pointers = [] {
        std::array<const char*, facts.size()> all{};
        for (std::size_t i = 0; i < facts.size(); ++i) all[i] = facts[i].pointer;
        return all;
    }();
    return pointers;
}

std::string text_at(const nlohmann::ordered_json& json, const std::string& pointer) {
    const nlohmann::ordered_json::json_pointer at(pointer);
    return json.contains(at) && json[at].is_string() ? json[at].get<std::string>() : "";
}

std::optional<double> number_at(const nlohmann::ordered_json& json, const std::string& pointer) {
    const nlohmann::ordered_json::json_pointer at(pointer);
    return json.contains(at) && json[at].is_number() ? std::optional(json[at].get<double>()) : std::nullopt;
}

} // namespace amp

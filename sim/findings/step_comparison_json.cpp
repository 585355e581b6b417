// Reads and writes what ampscope.torch.compare measured. It may come from anywhere, so everything in it is checked.
#include <ampscope/sim/base/text.h>
#include <ampscope/sim/findings/detail/report_values.h>
#include <ampscope/sim/findings/detail/step_ranking.h>
#include <ampscope/sim/io/json_reader.h>
#include <ampscope/sim/io/json_value.h>

#include <fmt/format.h>

#include <array>
#include <cmath>

namespace amp {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view comparing_tool = "ampscope.torch.compare";
constexpr int comparison_version = 1;
constexpr std::array step_casts = {"input", "weight", "gradient", "output", "output_gradient"};

struct ErrorField {
    const char* name;
    std::optional<RelativeError> ModuleErrors::*error;
};
constexpr std::array<ErrorField, 7> error_fields = {{{"output", &ModuleErrors::output},
                                                     {"output_gradient", &ModuleErrors::output_gradient},
                                                     {"weight_gradient", &ModuleErrors::weight_gradient},
                                                     {"own_output", &ModuleErrors::own_output},
                                                     {"own_input_gradient", &ModuleErrors::own_input_gradient},
                                                     {"own_weight_gradient", &ModuleErrors::own_weight_gradient},
                                                     {"effect", &ModuleErrors::effect}}};

const Json& list_at(const Json& json, const char* key) {
    const Json& array = json.at(key);
    if (!array.is_array()) throw std::invalid_argument(fmt::format("its {} are no list", key));
    return array;
}

std::vector<std::string> texts_at(const Json& json, const char* key) {
    std::vector<std::string> texts;
    for (const Json& text : list_at(json, key)) texts.push_back(text.get<std::string>());
    return texts;
}

/// A finite number; none for null.
std::optional<double> finite_or_none(const Json& json, const char* key) {
    if (json.at(key).is_null()) return std::nullopt;
    const auto x = json.at(key).get<double>();
    if (!std::isfinite(x)) throw std::invalid_argument(fmt::format("its {} is not finite", key));
    return x;
}

RelativeError error_of(const Json& json) {
    RelativeError e{.relative = finite_or_none(json, "relative"),
                    .elements = detail::count_at(json, "elements"),
                    .nonfinite = detail::count_at(json, "nonfinite")};
    if (e.relative && *e.relative < 0) throw std::invalid_argument("its relative error is negative");
    if (e.nonfinite > e.elements) throw std::invalid_argument("it has more nonfinite elements than elements");
    return e;
}

Json json_of(const RelativeError& e) {
    return {{"relative", or_null(e.relative)}, {"elements", e.elements}, {"nonfinite", e.nonfinite}};
}

StepCasts casts_of(const Json& json) {
    StepCasts c{detail::count_at(json, "nonzero"), detail::count_at(json, "underflow"),
                detail::count_at(json, "saturated")};
    if (c.underflow > c.nonzero || c.saturated > c.nonzero - c.underflow)
        throw std::invalid_argument("its casts count more elements than there are");
    return c;
}

/// use(element, i) for each element of an array; what it throws names the element.
template <class Use>
void each_of(const Json& json, const char* key, const Use& use) {
    std::size_t i = 0;
    for (const Json& element : list_at(json, key)) {
        try {
            use(element, i);
        } catch (const std::bad_alloc&) { // not a fault of the document
            throw;
        } catch (const std::exception& error) {
            throw std::invalid_argument(fmt::format("{}[{}]: {}", key, i, words_of(error)));
        }
        ++i;
    }
}

ModuleErrors errors_of(const Json& json) {
    ModuleErrors m;
    for (const ErrorField& field : error_fields)
        if (const Json& error = json.at(field.name); !error.is_null()) m.*field.error = error_of(error);
    if (!json.at("casts").is_object()) throw std::invalid_argument("its casts are no object");
    for (const auto& [what, counts] : json.at("casts").items()) {
        if (std::ranges::find(step_casts, what) == step_casts.end())
            throw std::invalid_argument(fmt::format("it casts '{}'", what.substr(0, 40)));
        m.casts[what] = casts_of(counts);
    }
    return m;
}

PrecisionStep step_of(const Json& json, std::size_t modules) {
    PrecisionStep step{.precision = json.at("precision").get<std::string>(),
                       .loss = finite_or_none(json, "loss"),
                       .loss_scale = json.at("loss_scale").get<double>(),
                       .steps = detail::count_at(json, "steps"),
                       .gradient = error_of(json.at("gradient")),
                       .modules = {}};
    if (!(step.loss_scale > 0) || !std::isfinite(step.loss_scale))
        throw std::invalid_argument("its loss_scale is not positive and finite");
    each_of(json, "modules", [&](const Json& m, std::size_t) { step.modules.push_back(errors_of(m)); });
    if (step.modules.size() != modules)
        throw std::invalid_argument(
            fmt::format("it has {}, and the model has {}", plural(step.modules.size(), "module"), modules));
    if (const Json& kept = json.at("kept"); !kept.is_null())
        step.kept = KeptStep{texts_at(kept, "modules"), error_of(kept.at("gradient"))};
    return step;
}

StepComparison comparison_of(const Json& json) {
    if (!json.is_object() || json.value("tool", Json()) != comparing_tool)
        throw std::invalid_argument("it was not saved by ampscope.torch.compare");
    if (json.at("schema_version") != comparison_version)
        throw std::invalid_argument(fmt::format("its schema_version is {}, and this version of ampscope reads {}",
                                                json.at("schema_version").dump().substr(0, 40), comparison_version));
    StepComparison c{.model = json.at("model").get<std::string>(),
                     .loss = finite_or_none(json, "loss"),
                     .modules = {},
                     .precisions = {}};
    each_of(json, "modules", [&](const Json& m, std::size_t) {
        c.modules.push_back({m.at("name").get<std::string>(), m.at("type").get<std::string>(),
                             detail::count_at(m, "calls"), detail::count_at(m, "parameters")});
    });
    each_of(json, "precisions",
            [&](const Json& step, std::size_t) { c.precisions.push_back(step_of(step, c.modules.size())); });
    c.warnings = texts_at(json, "warnings");
    return c;
}

Json share_of(const StepCasts& casts, std::uint64_t StepCasts::*part) {
    if (casts.nonzero == 0) return nullptr;
    return static_cast<double>(casts.*part) / static_cast<double>(casts.nonzero);
}

Json json_of(const StepComparison& c, const PrecisionStep& step) {
    Json json = {{"precision", step.precision},
                 {"loss", or_null(step.loss)},
                 {"loss_scale", step.loss_scale},
                 {"steps", step.steps},
                 {"gradient", json_of(step.gradient)},
                 {"verdict", step.verdict},
                 {"ranked_by", step.by_effect ? "effect" : "own_error"},
                 {"ranking", Json::array()},
                 {"kept", nullptr},
                 {"modules", Json::array()}};
    std::vector<RankedModule> ranked(step.modules.size()); // by module
    for (const RankedModule& r : step.ranking) {
        json["ranking"].push_back(c.modules[r.module].name);
        ranked[r.module] = r;
    }
    if (step.kept) json["kept"] = {{"modules", step.kept->modules}, {"gradient", json_of(step.kept->gradient)}};
    for (std::size_t i = 0; i < step.modules.size(); ++i) {
        const ModuleErrors& m = step.modules[i];
        Json module = {{"module", c.modules[i].name},
                       {"own_error", finite_or_null(m.own())},
                       {"share", ranked[i].share},
                       {"stands_out", ranked[i].stands_out},
                       {"underflow", share_of(m.all_casts(), &StepCasts::underflow)},
                       {"saturated", share_of(m.all_casts(), &StepCasts::saturated)}};
        for (const ErrorField& field : error_fields) {
            const std::optional<RelativeError>& error = m.*field.error;
            module[field.name] = error ? json_of(*error) : Json(nullptr);
        }
        module["casts"] = Json::object();
        for (const auto& [what, n] : m.casts)
            module["casts"][what] = {{"nonzero", n.nonzero}, {"underflow", n.underflow}, {"saturated", n.saturated}};
        json["modules"].push_back(module);
    }
    return json;
}

} // namespace

bool is_step_comparison(const std::filesystem::path& file) { return begins_with(file, "tool", comparing_tool); }

StepComparison step_comparison_of(const Json& document, const std::filesystem::path& file) {
    return taken(file, "is no comparison of a step", [&] {
        StepComparison c = comparison_of(document);
        detail::judge(c);
        return c;
    });
}

StepComparison read_step_comparison(const std::filesystem::path& file) {
    return step_comparison_of(read_json_object(file), file);
}

Json json_of(const StepComparison& c) {
    Json json = {{"tool", comparing_tool},      {"schema_version", comparison_version},
                 {"version", AMPSCOPE_VERSION}, {"model", c.model},
                 {"loss", or_null(c.loss)},     {"modules", Json::array()},
                 {"precisions", Json::array()}, {"warnings", c.warnings}};
    for (const StepModule& m : c.modules)
        json["modules"].push_back(
            {{"name", m.name}, {"type", m.type}, {"calls", m.calls}, {"parameters", m.parameters}});
    for (const PrecisionStep& step : c.precisions) json["precisions"].push_back(json_of(c, step));
    return json;
}

} // namespace amp

#include <ampscope/sim/findings/detail/adam_checkpoint.h>

#include <ampscope/sim/base/text.h>
#include <ampscope/sim/io/optimizer_state.h>

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>

namespace amp::detail {

namespace {

using Values = std::map<std::string, PlainValue>;
using Tensors = std::vector<const RecordedTensor*>;

/// The tensors of one parameter's state.
struct State {
    const RecordedTensor *m = nullptr, *v = nullptr, *step = nullptr, *master = nullptr;
};

/// The state of one optimizer, by parameter, and what stands before "state." in its names.
struct Optimizer {
    std::filesystem::path file;
    std::string owner;
    std::map<std::string, State> states;
    Values values; ///< of its file
};

std::optional<std::size_t> number_in(const std::string& text) {
    std::size_t number = 0;
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
    return problem == std::errc{} && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

std::optional<double> real_in(const Values& values, const std::string& name) {
    const auto found = values.find(name);
    const double* number = found == values.end() ? nullptr : std::get_if<double>(&found->second);
    return number == nullptr ? std::nullopt : std::optional(*number);
}

/// A name of a parameter: a text, or a number.
std::optional<std::string> name_in(const Values& values, const std::string& name) {
    const auto found = values.find(name);
    if (found == values.end()) return std::nullopt;
    if (const auto* text = std::get_if<std::string>(&found->second)) return *text;
    return fmt::format("{}", std::get<double>(found->second));
}

std::vector<Optimizer> optimizers_in(const std::vector<RecordedTensor>& tensors) {
    std::map<std::pair<std::filesystem::path, std::string>, Optimizer> found;
    for (const RecordedTensor& t : tensors) {
        const auto name = state_name(t.entry.name);
        if (!name) continue;
        Optimizer& optimizer = found[{t.file, name->owner}];
        optimizer.file = t.file;
        optimizer.owner = name->owner;
        State& state = optimizer.states[name->parameter];
        switch (name->role) {
        case StateRole::m: state.m = &t; break;
        case StateRole::v: state.v = &t; break;
        case StateRole::step: state.step = &t; break;
        case StateRole::master: state.master = &t; break;
        case StateRole::other: break;
        }
    }
    std::vector<Optimizer> optimizers;
    for (auto& [key, optimizer] : found) {
        std::erase_if(optimizer.states, [](const auto& item) {
            const State& s = item.second;
            return s.m == nullptr || s.v == nullptr || s.m->entry.count != s.v->entry.count;
        });
        if (!optimizer.states.empty()) optimizers.push_back(std::move(optimizer));
    }
    return optimizers;
}

/// Weights by their names, and by what is left of them without the words before a dot: "model.h.0.bias" is "h.0.bias",
/// too.
class Weights {
  public:
    explicit Weights(const std::vector<RecordedTensor>& tensors) {
        constexpr int most_words = 4; // "app.state_dict.model.module."
        for (const RecordedTensor& t : tensors) {
            if (state_name(t.entry.name)) continue;
            all_.push_back(&t);
            std::size_t at = 0;
            for (int words = 0; words <= most_words && at < t.entry.name.size(); ++words) {
                named_[t.entry.name.substr(at)].push_back(&t);
                const std::size_t dot = t.entry.name.find('.', at);
                if (dot == std::string::npos) break;
                at = dot + 1;
            }
        }
    }

    /// The weight of a parameter of that size; null if there is none, or several.
    [[nodiscard]] const RecordedTensor* of(const std::string& parameter, std::uint64_t count) const {
        const auto found = named_.find(parameter);
        if (found == named_.end()) return nullptr;
        const auto fits = [&](const RecordedTensor* t) { return t->entry.count == count; };
        if (std::ranges::count_if(found->second, fits) == 1) return *std::ranges::find_if(found->second, fits);
        for (const RecordedTensor* t : found->second) // with an average of the weights beside them, say
            if (fits(t) && (t->entry.name == parameter || t->entry.name == "model." + parameter)) return t;
        return nullptr;
    }

    /// All that may be parameters, in the order of the file: not what layers keep beside them.
    [[nodiscard]] Tensors in_order() const {
        Tensors parameters = all_;
        std::erase_if(parameters, [](const RecordedTensor* t) {
            const std::string& name = t->entry.name;
            return name.ends_with("running_mean") || name.ends_with("running_var") ||
                   name.ends_with("num_batches_tracked");
        });
        return parameters;
    }

  private:
    Tensors all_;
    std::map<std::string, Tensors> named_;
};

/// The names of parameters that the optimizer counts: its own, else those of the weights, if they have the shapes of
/// all its parameters, in their order.
std::map<std::string, std::string> names_of_numbers(const Optimizer& optimizer, const Weights& weights) {
    std::map<std::string, std::string> names;
    const std::string groups = optimizer.owner + "param_groups.";
    for (std::size_t group = 0; optimizer.values.contains(fmt::format("{}{}.lr", groups, group)); ++group)
        for (std::size_t i = 0;; ++i) {
            const auto number = name_in(optimizer.values, fmt::format("{}{}.params.{}", groups, group, i));
            const auto name = name_in(optimizer.values, fmt::format("{}{}.param_names.{}", groups, group, i));
            if (!number || !name) break;
            names[*number] = *name;
        }
    if (!names.empty()) return names;
    std::map<std::size_t, const State*> states;
    for (const auto& [parameter, state] : optimizer.states) {
        const auto number = number_in(parameter);
        if (!number) return {};
        states[*number] = &state;
    }
    const Tensors parameters = weights.in_order();
    if (parameters.size() != states.size() || states.rbegin()->first + 1 != states.size()) return {};
    for (const auto& [number, state] : states) {
        if (parameters[number]->entry.shape != state->m->entry.shape) return {};
        names[std::to_string(number)] = parameters[number]->entry.name;
    }
    return names;
}

/// Where the settings of each parameter stand in a checkpoint: "optim.param_groups.0." or, where the state is
/// flattened, "optim.param_groups.h.0.bias.".
std::map<std::string, std::string> groups_of(const Optimizer& optimizer) {
    std::map<std::string, std::string> groups;
    const std::string all = optimizer.owner + "param_groups.";
    for (const auto& [parameter, state] : optimizer.states)
        if (optimizer.values.contains(all + parameter + ".lr")) groups[parameter] = all + parameter + ".";
    for (std::size_t group = 0; optimizer.values.contains(fmt::format("{}{}.lr", all, group)); ++group)
        for (std::size_t i = 0;; ++i) {
            const auto name = name_in(optimizer.values, fmt::format("{}{}.params.{}", all, group, i));
            if (!name) break;
            groups[*name] = fmt::format("{}{}.", all, group);
        }
    return groups;
}

OptimizerOptions settings_in(const Values& values, const std::string& group, OptimizerOptions settings) {
    const auto take = [&](const char* key, double& setting) {
        setting = real_in(values, group + key).value_or(setting);
    };
    take("lr", settings.learning_rate);
    take("betas.0", settings.beta1);
    take("betas.1", settings.beta2);
    take("eps", settings.eps);
    take("weight_decay", settings.weight_decay);
    if (const auto decoupled = real_in(values, group + "decoupled_weight_decay"))
        settings.kind = *decoupled != 0 ? OptimizerKind::adamw : OptimizerKind::adam;
    return settings;
}

} // namespace

std::vector<CheckpointParameter> checkpoint_parameters(const std::vector<RecordedTensor>& tensors, OpenFiles& open,
                                                       const OptimizerOptions& usual,
                                                       std::vector<std::string>& warnings) {
    const Weights weights(tensors);
    std::vector<CheckpointParameter> parameters;
    for (Optimizer& optimizer : optimizers_in(tensors)) {
        const std::string file = optimizer.file.string();
        try {
            optimizer.values = open(optimizer.file)->values();
        } catch (const FileError& error) {
            warnings.push_back(fmt::format("{}; the optimizer's settings are not known", error.what()));
        }
        const auto names = names_of_numbers(optimizer, weights);
        const auto groups = groups_of(optimizer);
        if (groups.empty())
            warnings.push_back(file + ": does not say the optimizer's settings: they are taken to be the usual ones, "
                                      "or as --lr, --beta1, --beta2 and --at say");
        for (const auto& [own, state] : optimizer.states) {
            const auto name = names.find(own);
            CheckpointParameter p{.name = name == names.end() ? own : name->second, .m = *state.m, .v = *state.v};
            const RecordedTensor* weight = weights.of(p.name, p.m.entry.count);
            if (state.master != nullptr && state.master->entry.count == p.m.entry.count) weight = state.master;
            if (weight != nullptr) p.weight = *weight;
            if (state.step != nullptr) p.step = *state.step;
            const auto group = groups.find(own);
            p.settings = group == groups.end() ? usual : settings_in(optimizer.values, group->second, usual);
            check(p.settings);
            parameters.push_back(std::move(p));
        }
    }
    return parameters;
}

} // namespace amp::detail

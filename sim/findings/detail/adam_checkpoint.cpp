#include <ampscope/sim/findings/detail/adam_checkpoint.h>

#include <ampscope/sim/base/number.h>
#include <ampscope/sim/base/text.h>
#include <ampscope/sim/findings/detail/checkpoint_weights.h>
#include <ampscope/sim/io/optimizer_state.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>

namespace amp::detail {

namespace {

using Values = std::map<std::string, PlainValue>;

/// The tensors of one parameter's state.
struct State {
    const RecordedTensor *m = nullptr, *v = nullptr, *step = nullptr, *master = nullptr;
    bool has_v_max = false; ///< AMSGrad's
};

/// The state of one optimizer, by parameter, and what stands before "state." in its names.
struct Optimizer {
    std::filesystem::path file;
    std::string owner;
    std::map<std::string, State> states;
    Values values; ///< of its file
};

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
        case StateRole::v_max: state.has_v_max = true; break;
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

/// The scalars that stand among the tensors as settings of the optimizer's groups: a learning rate on a device, say.
void add_settings(Optimizer& optimizer, const std::vector<RecordedTensor>& tensors, OpenFiles& open) {
    for (const RecordedTensor& t : tensors) {
        if (t.file != optimizer.file || t.entry.count != 1 || info(t.entry.dtype).numbers() != 1) continue;
        if (!t.entry.name.starts_with(optimizer.owner + "param_groups.")) continue;
        const std::vector<float> value = TensorPlace{t.file, t.index}.read(open, 0, 1);
        optimizer.values.insert_or_assign(t.entry.name, static_cast<double>(value.front()));
    }
}

/// Whether something is known of the group whose settings begin with that.
bool has_group(const Values& values, const std::string& group) {
    constexpr std::array keys = {"params.0", "lr", "betas.0", "eps", "weight_decay", "step"};
    return std::ranges::any_of(keys, [&](const char* key) { return values.contains(group + key); });
}

/// What stands before the settings of each numbered group: "optim.param_groups.0.".
std::vector<std::string> numbered_groups(const Optimizer& optimizer) {
    std::vector<std::string> groups;
    for (std::size_t group = 0;; ++group) {
        groups.push_back(fmt::format("{}param_groups.{}.", optimizer.owner, group));
        if (has_group(optimizer.values, groups.back())) continue;
        groups.pop_back();
        return groups;
    }
}

/// The names that the optimizer has for the parameters that it counts; those of others are names already.
std::map<std::string, std::string> own_names(const Optimizer& optimizer) {
    std::map<std::string, std::string> names;
    for (const auto& [parameter, state] : optimizer.states)
        if (!number_of<std::size_t>(parameter)) names[parameter] = parameter;
    for (const std::string& group : numbered_groups(optimizer))
        for (std::size_t i = 0;; ++i) {
            const std::string place = fmt::format("{}params.{}", group, i);
            const auto own = name_in(optimizer.values, place);
            const auto name = name_in(optimizer.values, fmt::format("{}param_names.{}", group, i));
            if (!own) break;
            if (name) names[*own] = *name;
            else if (std::holds_alternative<std::string>(optimizer.values.at(place))) names[*own] = *own;
        }
    return names;
}

/// The weights of parameters that the optimizer counts and has no names for, if there is but one way to find them.
std::map<std::string, const RecordedTensor*> weights_of_numbers(const Optimizer& optimizer,
                                                                const CheckpointWeights& weights) {
    std::map<std::size_t, CheckpointWeights::Shape> shapes;
    for (const auto& [parameter, state] : optimizer.states) {
        const auto number = number_of<std::size_t>(parameter);
        if (!number) return {};
        shapes[*number] = state.m->entry.shape;
    }
    // Which parameters are in which of several groups is not known, so neither is their order.
    const bool in_order = numbered_groups(optimizer).size() <= 1;
    std::map<std::string, const RecordedTensor*> found;
    for (const auto& [number, weight] : weights.of_numbers(shapes, in_order)) found[std::to_string(number)] = weight;
    return found;
}

/// Where the settings of each parameter stand in a checkpoint: "optim.param_groups.0." or, where the state is
/// flattened, "optim.param_groups.h.0.bias.".
std::map<std::string, std::string> groups_of(const Optimizer& optimizer) {
    std::map<std::string, std::string> groups;
    const std::string all = optimizer.owner + "param_groups.";
    if (!optimizer.values.contains(all + "0.params.0"))
        for (const auto& [parameter, state] : optimizer.states)
            if (has_group(optimizer.values, all + parameter + ".")) groups[parameter] = all + parameter + ".";
    for (const std::string& group : numbered_groups(optimizer))
        for (std::size_t i = 0;; ++i) {
            const auto name = name_in(optimizer.values, fmt::format("{}params.{}", group, i));
            if (!name) break;
            groups[*name] = group;
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

/// Reads the settings of an optimizer, and warns of what is not known of them.
std::map<std::string, std::string> read_groups(Optimizer& optimizer, const std::vector<RecordedTensor>& tensors,
                                               OpenFiles& open, std::vector<std::string>& warnings) {
    const std::string file = optimizer.file.string();
    try {
        optimizer.values = open(optimizer.file)->values();
        add_settings(optimizer, tensors, open);
    } catch (const FileError& error) {
        warnings.push_back(fmt::format("{}; the optimizer's settings are not known", error.what()));
    }
    auto groups = groups_of(optimizer);
    const auto lacks_rate = [&](const auto& state) {
        const auto group = groups.find(state.first);
        return group == groups.end() || !real_in(optimizer.values, group->second + "lr");
    };
    const auto lacking = static_cast<std::size_t>(std::ranges::count_if(optimizer.states, lacks_rate));
    if (groups.empty())
        warnings.push_back(file + ": does not say the optimizer's settings: they are taken to be the usual ones, "
                                  "or as --lr, --beta1, --beta2 and --at say");
    else if (lacking > 0)
        warnings.push_back(fmt::format("{}: does not say all settings of {}: those that are missing are taken to be "
                                       "the usual ones, or as --lr, --beta1, --beta2 and --at say",
                                       file, plural(lacking, "tensor")));
    bool largest = std::ranges::any_of(optimizer.states, [](const auto& item) { return item.second.has_v_max; });
    for (const auto& [parameter, group] : groups)
        largest = largest || real_in(optimizer.values, group + "amsgrad").value_or(0) != 0;
    if (largest)
        warnings.push_back(file + ": AMSGrad divides by the root of the largest v, which is not used: the answer is "
                                  "that of Adam, which divides by the root of v");
    return groups;
}

/// The number of steps that a parameter has made, where it is no tensor of its state.
std::optional<double> updates_in(const Optimizer& optimizer, const std::string& parameter,
                                 const std::optional<std::string>& group) {
    if (const auto own = real_in(optimizer.values, fmt::format("{}state.{}.step", optimizer.owner, parameter)))
        return own;
    return group ? real_in(optimizer.values, *group + "step") : std::nullopt;
}

[[noreturn]] void refuse_several(const std::filesystem::path& path, const std::set<std::filesystem::path>& files,
                                 const std::optional<std::int64_t>& step) {
    constexpr std::size_t most = 6;
    std::vector<std::string> names;
    for (const std::filesystem::path& file : files) names.push_back(file.lexically_relative(path).string());
    if (names.size() > most) {
        names.resize(most);
        names.emplace_back("...");
    }
    throw FileError(path, fmt::format("holds several checkpoints {}; name one: {}",
                                      step ? fmt::format("of step {}", *step) : "without steps in their names",
                                      fmt::join(names, ", ")));
}

} // namespace

bool has_gradients(const std::vector<RecordedTensor>& tensors, const std::optional<std::int64_t>& step) {
    return std::ranges::any_of(tensors, [&](const RecordedTensor& t) {
        const bool is_later = step && t.step && *t.step > *step;
        return t.kind == TensorKind::weight_gradient && t.entry.name.ends_with(".grad") && !is_later;
    });
}

std::vector<RecordedTensor> examined_checkpoint(const std::filesystem::path& path,
                                                const std::vector<RecordedTensor>& tensors,
                                                const std::optional<std::int64_t>& step) {
    std::optional<std::int64_t> first, last;
    bool is_there = false;
    for (const RecordedTensor& t : tensors) {
        if (!state_name(t.entry.name)) continue;
        is_there = true;
        if (!t.step) continue;
        first = std::min(first.value_or(*t.step), *t.step);
        if (!step || *t.step <= *step) last = std::max(last.value_or(*t.step), *t.step);
    }
    if (!is_there) return {};
    if (step && !last) {
        if (has_gradients(tensors, step)) return {};
        if (first) throw FileError(path, fmt::format("the earliest checkpoint is of step {}", *first));
        throw FileError(path, "--step selects a checkpoint by the number that ends its name, and there is none");
    }
    std::vector<RecordedTensor> examined = tensors;
    std::erase_if(examined, [&](const RecordedTensor& t) { return last && t.step != last; });
    std::set<std::filesystem::path> files, folders;
    std::map<std::pair<std::string, std::string>, std::filesystem::path> file_of;
    bool is_one = true;
    for (const RecordedTensor& t : examined) {
        const auto name = state_name(t.entry.name);
        if (!name) continue;
        files.insert(t.file);
        folders.insert(t.file.parent_path());
        is_one = is_one && file_of.try_emplace({name->owner, name->parameter}, t.file).first->second == t.file;
    }
    if (!is_one || folders.size() > 1) refuse_several(path, files, last);
    return examined;
}

std::vector<CheckpointParameter> checkpoint_parameters(const std::vector<RecordedTensor>& tensors, OpenFiles& open,
                                                       const OptimizerOptions& usual,
                                                       std::vector<std::string>& warnings) {
    std::vector<CheckpointParameter> parameters;
    for (Optimizer& optimizer : optimizers_in(tensors)) {
        const CheckpointWeights weights(tensors, optimizer.file);
        const auto groups = read_groups(optimizer, tensors, open, warnings);
        const auto names = own_names(optimizer);
        const auto counted =
            names.empty() ? weights_of_numbers(optimizer, weights) : std::map<std::string, const RecordedTensor*>();
        bool all_named = true;
        for (const auto& [own, state] : optimizer.states) {
            CheckpointParameter p{.name = own, .m = *state.m, .v = *state.v};
            const RecordedTensor* weight = nullptr;
            if (const auto name = names.find(own); name != names.end()) {
                p.name = name->second;
                weight = weights.of(p.name, p.m.entry.count);
            } else if (const auto number = counted.find(own); number != counted.end()) {
                weight = number->second;
                p.name = weight->entry.name;
            } else {
                all_named = false;
            }
            if (state.master != nullptr && state.master->entry.count == p.m.entry.count) weight = state.master;
            if (weight != nullptr) p.weight = *weight;
            p.is_unmatched = weight == nullptr && !weights.empty();
            if (state.step != nullptr) p.step = *state.step;
            const auto found = groups.find(own);
            const auto group = found == groups.end() ? std::nullopt : std::optional(found->second);
            p.updates = updates_in(optimizer, own, group);
            p.settings = group ? settings_in(optimizer.values, *group, usual) : usual;
            try {
                check(p.settings);
            } catch (const std::invalid_argument& error) {
                throw FileError(optimizer.file, p.name + ": " + error.what());
            }
            parameters.push_back(std::move(p));
        }
        if (!all_named)
            warnings.push_back(optimizer.file.string() + ": the optimizer counts its parameters, and nothing tells for "
                                                         "sure which weights are theirs: numbers are their names");
    }
    return parameters;
}

} // namespace amp::detail

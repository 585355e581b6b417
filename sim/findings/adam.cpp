#include <ampscope/sim/findings/adam.h>

#include <ampscope/formats/environment.h>
#include <ampscope/formats/policy.h>
#include <ampscope/sim/base/parallel.h>
#include <ampscope/sim/base/text.h>
#include <ampscope/sim/findings/detail/adam_advice.h>
#include <ampscope/sim/findings/detail/adam_checkpoint.h>
#include <ampscope/sim/findings/detail/adam_source.h>
#include <ampscope/sim/findings/detail/recorded_state.h>
#include <ampscope/sim/findings/detail/update_log.h>
#include <ampscope/sim/findings/recorded_run.h>
#include <ampscope/sim/findings/selection.h>
#include <ampscope/sim/io/text_file.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <mutex>

namespace amp {

namespace {

namespace fs = std::filesystem;
using detail::AdamSource;
using detail::CheckpointParameter;
using detail::GradientSeries;
using detail::UpdateLog;

/// The index of an eps in a sweep that has it.
std::size_t place_of(double eps, const std::vector<double>& sweep) {
    return static_cast<std::size_t>(std::ranges::find(sweep, eps) - sweep.begin());
}

/// `recorded`: the eps that the run has, which are added to the sweep.
AdamQuestion question_of(const OptimizerOptions& o, const std::map<double, std::uint64_t>& recorded,
                         const AdamOptions& options) {
    AdamQuestion question{.options = o, .eps = options.eps, .states = options.states, .weights = options.weights};
    for (const auto& [eps, parameters] : recorded)
        if (std::ranges::find(question.eps, eps) == question.eps.end()) question.eps.push_back(eps);
    std::ranges::sort(question.eps, std::greater<>());
    question.usual_eps = place_of(o.eps, question.eps);
    std::erase(question.states, AdamState()); // FP32, with which the others are compared, is always there
    question.states.insert(question.states.begin(), AdamState());
    return question;
}

/// The first of the gradients that is NaN or infinite in some element, if the optimizer used it.
std::optional<std::size_t> first_nonfinite(const AdamHistory& history) {
    const auto is_broken = [](float g) { return !std::isfinite(g); };
    for (std::size_t i = 0; i < history.gradients.size(); ++i)
        if (history.repeats[i] > 0 && std::ranges::any_of(history.gradients[i], is_broken)) return i;
    return std::nullopt;
}

class Collector {
  public:
    Collector(const fs::path& path, const AdamOptions& options) : path_(path), options_(options) {
        if (options.eps.empty()) throw std::invalid_argument("[adam] expected an eps at least");
        findings_.name = path.string();
    }

    AdamFindings run(const Watch& watch) {
        const Recording recording = find_tensors({path_}, {}, {.recorded_scale = options_.recorded_scale});
        findings_.warnings.insert(findings_.warnings.end(), recording.warnings.begin(), recording.warnings.end());
        findings_.errors = recording.errors;
        const std::vector<CheckpointParameter> parameters = parameters_in(recording);
        return parameters.empty() ? run_recorded(recording, watch) : run_checkpoint(parameters, watch);
    }

  private:
    AdamFindings run_recorded(const Recording& recording, const Watch& watch) {
        GradientSeries by_name;
        std::vector<std::string> names;
        for (const RecordedTensor& t : recording.tensors) {
            const bool later = options_.step && t.step && *t.step > *options_.step;
            if (t.kind != TensorKind::weight_gradient || later || !matches(options_.tensor, t.entry.name)) continue;
            if (by_name[t.entry.name].empty()) names.push_back(t.entry.name);
            by_name[t.entry.name].push_back(&t);
        }
        if (names.empty() && !findings_.errors.empty()) throw RecordingError(findings_.errors);
        if (names.empty()) throw FileError(path_, "holds no weights' gradients that the options select");
        read_log(by_name);
        judge(by_name);
        std::uint64_t work = 0;
        for (const auto& [name, series] : by_name) work += series.back()->entry.count;
        const Progress progress = begin(watch, work);
        for (const std::string& name : names) {
            if (!by_name.contains(name)) continue; // all its steps were skipped
            try {
                measure(name, find(name, by_name[name]), *by_name[name].back(), progress);
            } catch (const FileError& error) {
                add_error(findings_.errors, error);
            }
        }
        return advised();
    }

    AdamFindings advised() {
        if (findings_.tensors.empty()) throw RecordingError(findings_.errors);
        if (options_.step && findings_.step != options_.step)
            findings_.warnings.push_back(fmt::format(
                "{}: has nothing of step {}; {}", findings_.name, *options_.step,
                findings_.step ? fmt::format("step {} is examined", *findings_.step) : "its files name no step"));
        detail::advise(findings_);
        return std::move(findings_);
    }

    /// The selected parameters of the examined checkpoint; empty if there is none.
    std::vector<CheckpointParameter> parameters_in(const Recording& recording) {
        const std::vector<RecordedTensor> tensors =
            detail::examined_checkpoint(path_, recording.tensors, options_.step);
        if (tensors.empty()) return {};
        auto parameters = detail::checkpoint_parameters(
            tensors, open_, options_.optimizer.value_or(optimizer("adamw").options), findings_.warnings);
        const bool has_moments = !parameters.empty();
        std::erase_if(parameters, [&](const CheckpointParameter& p) { return !matches(options_.tensor, p.name); });
        for (CheckpointParameter& p : parameters) p.settings = detail::overridden(p.settings, options_);
        if (!parameters.empty() || detail::has_gradients(recording.tensors, options_.step)) return parameters;
        if (!findings_.errors.empty()) throw RecordingError(findings_.errors);
        throw FileError(path_, has_moments
                                   ? "holds no parameter's state that the options select"
                                   : "holds the state of an optimizer, but not Adam's m and v (exp_avg, exp_avg_sq): "
                                     "SGD and Lion, say, have no v");
    }

    AdamFindings run_checkpoint(const std::vector<CheckpointParameter>& parameters, const Watch& watch) {
        findings_.basis = AdamBasis::checkpoint;
        std::uint64_t work = 0;
        std::vector<std::pair<OptimizerOptions, std::uint64_t>> settings;
        for (const CheckpointParameter& p : parameters) {
            work += p.m.entry.count;
            if (p.is_unmatched) findings_.unmatched.push_back(p.name);
            settings.emplace_back(p.settings, p.m.entry.count);
        }
        ask(settings);
        const Progress progress = begin(watch, work);
        std::size_t without_step = 0;
        for (const CheckpointParameter& p : parameters) {
            try {
                measure(p.name, source_of(p, without_step), p.m, progress);
            } catch (const FileError& error) {
                add_error(findings_.errors, error);
            }
        }
        if (without_step > 0) {
            findings_.basis = AdamBasis::unnumbered;
            findings_.warnings.push_back(
                fmt::format("{}: does not say how many steps {} made: so many that nothing is left of the bias "
                            "corrections, it is assumed",
                            findings_.name, plural(without_step, "tensor")));
        }
        return advised();
    }

    AdamSource source_of(const CheckpointParameter& p, std::size_t& without_step) {
        constexpr std::int64_t many = std::int64_t{1} << 40;
        const auto place = [](const RecordedTensor& t) { return detail::TensorPlace{t.file, t.index}; };
        AdamSource source{.gradients = {},
                          .repeats = {},
                          .steps = {},
                          .settings = {p.settings},
                          .weight = {},
                          .m = place(p.m),
                          .v = place(p.v),
                          .first = many};
        if (p.weight) source.weight = place(*p.weight);
        double step = p.updates.value_or(0);
        if (p.step && p.step->entry.count == 1) step = place(*p.step).read(open_, 0, 1).front();
        if (step >= 1 && step < static_cast<double>(many)) {
            source.first = static_cast<std::int64_t>(step);
            findings_.step = std::max(findings_.step.value_or(0), source.first);
        } else {
            ++without_step;
        }
        return source;
    }

    /// Finds the examined step, reads the settings of the optimizer, and leaves out what it did not see.
    void read_log(GradientSeries& by_name) {
        const std::set<std::int64_t> steps = detail::steps_of(by_name);
        UpdateLog& log = log_.emplace(path_, options_, steps);
        log.leave_out_skipped(by_name, open_);
        if (const std::set<std::int64_t> left = detail::steps_of(by_name); !left.empty())
            findings_.step = *left.rbegin();
        std::vector<std::pair<OptimizerOptions, std::uint64_t>> settings;
        for (const auto& [name, series] : by_name)
            settings.emplace_back(log.settings(name, findings_.step), series.back()->entry.count);
        ask(settings);
        if (log.leaves_out_decay())
            findings_.warnings.push_back(findings_.name + ": weight decay, which Adam adds to gradients, is left out");
        if (!steps.empty() && log.was_skipped(*steps.rbegin()))
            findings_.warnings.push_back(fmt::format(
                "{}: step {} was skipped: its gradients are not finite{}", findings_.name, *steps.rbegin(),
                findings_.step == *steps.rbegin() ? "" : fmt::format("; step {} is examined", *findings_.step)));
    }

    /// The question, about the settings of the group with most elements, and with the eps of every group in its sweep.
    void ask(const std::vector<std::pair<OptimizerOptions, std::uint64_t>>& parameters) {
        struct Group {
            OptimizerOptions settings;
            std::uint64_t elements = 0, parameters = 0;
        };
        std::vector<Group> groups;
        for (const auto& [settings, elements] : parameters) {
            auto own = std::ranges::find(groups, settings, &Group::settings);
            if (own == groups.end()) own = groups.insert(own, {settings});
            own->elements += elements;
            ++own->parameters;
        }
        std::ranges::stable_sort(groups, std::greater<>(), &Group::elements);
        std::map<double, std::uint64_t> eps; // and the number of parameters that have it
        for (const Group& group : groups) eps[group.settings.eps] += group.parameters;
        findings_.question = question_of(groups.front().settings, eps, options_);
        if (eps.size() == 1) return;
        std::vector<std::string> parts;
        for (const auto& [value, tensors] : eps)
            parts.push_back(fmt::format("{:g} in {}", value, plural(tensors, "tensor")));
        findings_.warnings.push_back(fmt::format("{}: eps differs by parameter group: {}; what is said of all is about "
                                                 "{:g}, of a tensor about its own",
                                                 findings_.name, fmt::join(parts, ", "), findings_.usual_eps()));
    }

    /// Decides how the state is known, the same for all tensors.
    void judge(GradientSeries& by_name) {
        for (auto& [name, series] : by_name)
            std::ranges::stable_sort(series, {}, [](const RecordedTensor* t) { return t->step; });
        const auto whole = [&](const auto& item) { // a gradient for every update
            const std::optional<std::int64_t> last = item.second.back()->step;
            const auto taken = [&](const RecordedTensor* t) { return t->step && !log_->was_skipped(*t->step); };
            return last && std::ranges::count_if(item.second, taken) == log_->updates(0, *last + 1);
        };
        const bool one = std::ranges::all_of(by_name, [](const auto& item) { return item.second.size() == 1; });
        std::error_code none;
        if (findings_.step && fs::exists(detail::recorded_state(path_, *findings_.step), none))
            findings_.basis = AdamBasis::recorded;
        else if (std::ranges::all_of(by_name, whole)) findings_.basis = AdamBasis::contiguous;
        else findings_.basis = one ? AdamBasis::stationary : AdamBasis::held;
    }

    /// The number of successive updates with the gradient of a series' element i.
    [[nodiscard]] std::int64_t repeats(const std::vector<const RecordedTensor*>& series, std::size_t i) const {
        if (findings_.basis == AdamBasis::stationary) return options_.assumed_steps;
        if (i + 1 == series.size()) return 1;
        const std::optional<std::int64_t> step = series[i]->step, next = series[i + 1]->step;
        return step && next ? log_->updates(*step, *next) : 1;
    }

    AdamSource find(const std::string& name, const std::vector<const RecordedTensor*>& series) {
        AdamSource source;
        const bool recorded = findings_.basis == AdamBasis::recorded;
        const RecordedTensor& last = *series.back();
        if (recorded && last.step != findings_.step)
            throw FileError(last.file, fmt::format("{}: no gradient in step {}", name, *findings_.step));
        for (std::size_t i = recorded ? series.size() - 1 : 0; i < series.size(); ++i) {
            const RecordedTensor& t = *series[i];
            if (t.entry.count != last.entry.count)
                throw FileError(t.file, name + ": its size changes from step to step");
            source.gradients.push_back({t.file, t.index, t.recorded_scale});
            source.repeats.push_back(repeats(series, i));
            source.steps.push_back(t.step);
            source.settings.push_back(log_->settings(name, t.step));
        }
        if (!recorded) return source;
        source.first = log_->updates(0, *findings_.step) + 1;
        detail::find_state(open_, detail::recorded_state(path_, *findings_.step), name, last.entry.count, source);
        return source;
    }

    /// Calls add(effects, elements, history) in blocks of elements, from any thread; in one block if they share scales.
    template <class Add>
    void for_each_part(const AdamQuestion& question, const AdamSource& source, std::uint64_t numbers, const Add& add) {
        const bool shared = question.has_scales() && numbers > 0;
        if (!source.gradients.empty())
            return for_each_chunk(numbers, shared ? numbers : source.block(open_, numbers), options_.threads,
                                  [&](std::uint64_t begin, std::uint64_t end) {
                                      const AdamHistory history = source.read(open_, begin, end);
                                      add(adam_effects(question, history), end - begin, history);
                                  });
        const std::uint64_t read = shared ? numbers : 1 << 18, block = shared ? numbers : 1 << 14;
        detail::StateReader reader(source, open_);
        for (std::uint64_t first = 0; first < numbers; first += read) {
            const AdamHistory history = reader.read(std::min(first + read, numbers));
            for_each_chunk(history.m.size(), block, options_.threads, [&](std::uint64_t begin, std::uint64_t end) {
                add(adam_effects(question, detail::part_of(history, begin, end)), end - begin, history);
            });
        }
    }

    void note_nonfinite(const std::string& gradient, const std::optional<std::int64_t>& step) {
        std::optional<NonfiniteGradient>& first = findings_.nonfinite_gradient;
        if (!first || std::tie(step, gradient) < std::tie(first->step, first->tensor)) first = {gradient, step};
    }

    /// `last` is the tensor that tells the format of what was recorded: the examined gradient, or m.
    void measure(const std::string& name, const AdamSource& source, const RecordedTensor& last,
                 const Progress& progress) {
        const TensorEntry& entry = last.entry;
        const std::uint64_t numbers = entry.count * static_cast<std::uint64_t>(info(entry.dtype).numbers());
        AdamHistory nothing; // a tensor without elements counts nothing, but its effects have every state and eps, too
        nothing.gradients.emplace_back();
        nothing.repeats.push_back(1);
        AdamQuestion question = findings_.question; // with the tensor's own eps in use
        question.options = source.settings.back();
        question.usual_eps = place_of(question.options.eps, question.eps);
        AdamTensor tensor{.name = name,
                          .settings = question.options,
                          .usual_eps = question.usual_eps,
                          .effects = adam_effects(question, nothing),
                          .muted_from = {}};
        std::mutex adding; // the order does not matter: all are counts
        for_each_part(question, source, numbers,
                      [&](const AdamEffects& part, std::uint64_t elements, const AdamHistory& history) {
                          const std::optional<std::size_t> broken = first_nonfinite(history);
                          const std::lock_guard lock(adding);
                          tensor.effects.merge(part);
                          if (broken) note_nonfinite(name, source.steps[*broken]);
                          if (progress) progress(elements);
                      });
        findings_.total.merge(tensor.effects);
        findings_.censoring.merge(censoring_of({.stored = entry.stored().format,
                                                .backward = last.backward,
                                                .scale = last.recorded_scale,
                                                .zeros = tensor.effects.elements - tensor.effects.nonzero,
                                                .least_log2 = tensor.effects.least_log2,
                                                .elements = tensor.effects.elements}));
        if (!options_.tensor_ratios)
            for (StateEffects& state : tensor.effects.states)
                for (EpsEffects& eps : state.eps) eps.ratio = {};
        findings_.tensors.push_back(std::move(tensor));
    }

    fs::path path_;
    const AdamOptions& options_;
    std::optional<UpdateLog> log_;
    AdamFindings findings_;
    detail::OpenFiles open_;
};

} // namespace

std::string_view name_of(AdamBasis basis) {
    constexpr std::array<std::string_view, 6> names = {"recorded",   "contiguous", "checkpoint",
                                                       "unnumbered", "held",       "stationary"};
    return names[static_cast<std::size_t>(basis)];
}

std::vector<const AdamTensor*> AdamFindings::most_muted_first() const {
    std::vector<const AdamTensor*> ranked;
    for (const AdamTensor& t : tensors) ranked.push_back(&t);
    std::ranges::stable_sort(ranked, {}, [](const AdamTensor* t) {
        const AdamEffects& e = t->effects;
        const auto decided = static_cast<double>(e.states.front().eps[t->usual_eps].dominated);
        return std::pair(e.nonzero == 0 ? 0 : -decided / static_cast<double>(e.nonzero), e.root.median());
    });
    return ranked;
}

Known AdamFindings::known() const {
    return detail::is_open(total, question, censoring) ? Known::unknown : Known::exact;
}

std::vector<std::tuple<std::string_view, double, double>> AdamFindings::differing_settings() const {
    constexpr std::array<std::pair<std::string_view, double OptimizerOptions::*>, 5> settings = {
        {{"learning rate", &OptimizerOptions::learning_rate},
         {"beta1", &OptimizerOptions::beta1},
         {"beta2", &OptimizerOptions::beta2},
         {"eps", &OptimizerOptions::eps},
         {"weight decay", &OptimizerOptions::weight_decay}}};
    std::vector<std::tuple<std::string_view, double, double>> differing;
    for (const auto& [which, setting] : settings) {
        std::vector<double> values;
        for (const AdamTensor& t : tensors) values.push_back(t.settings.*setting);
        const auto [least, most] = std::ranges::minmax(values);
        if (least != most) differing.emplace_back(which, least, most);
    }
    return differing;
}

bool may_be_adam(const RunFacts& run) {
    return run.optimizer.empty() || run.optimizer.find("adam") != std::string::npos;
}

AdamOptions standard_adam_options() {
    AdamOptions options;
    for (int k = 4; k <= 15; ++k) options.eps.push_back(std::stod("1e-" + std::to_string(k)));
    options.weights = {format("fp32"), format("bf16"), format("fp16")};
    options.states.assign(options.weights.begin(), options.weights.end());
    return options;
}

AdamFindings adam_findings(const fs::path& path, const AdamOptions& options, const Watch& watch) {
    const FloatEnvironment environment;
    return Collector(only_run(path), options).run(watch);
}

} // namespace amp

#include <ampscope/sim/findings/adam.h>

#include <ampscope/formats/environment.h>
#include <ampscope/formats/policy.h>
#include <ampscope/sim/base/parallel.h>
#include <ampscope/sim/base/text.h>
#include <ampscope/sim/findings/detail/adam_advice.h>
#include <ampscope/sim/findings/detail/adam_source.h>
#include <ampscope/sim/findings/detail/recorded_state.h>
#include <ampscope/sim/findings/selection.h>
#include <ampscope/sim/io/run_layout.h>
#include <ampscope/sim/io/step_log.h>
#include <ampscope/sim/io/text_file.h>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>
#include <mutex>

namespace amp {

namespace {

namespace fs = std::filesystem;
using detail::AdamSource;
using detail::TensorPlace;

/// The optimizer of a run, as far as run.json states it.
OptimizerOptions optimizer_of(const RunFacts& run, const AdamOptions& options) {
    OptimizerOptions o = options.optimizer.value_or(optimizer("adamw").options);
    if (!options.optimizer) {
        if (!may_be_adam(run))
            throw std::invalid_argument(
                fmt::format("the run's optimizer is {}, which has no eps of Adam's: name one by "
                            "--optimizer",
                            upper_case(run.optimizer)));
        if (!run.optimizer_order.empty())
            o.order = parse_name<OptimizerOrder>("order", optimizer_order_names, run.optimizer_order);
        if (std::ranges::find(optimizer_kind_names, run.optimizer) != optimizer_kind_names.end())
            o.kind = parse_name<OptimizerKind>("kind", optimizer_kind_names, run.optimizer);
    }
    o.learning_rate = options.learning_rate.value_or(run.lr.value_or(o.learning_rate));
    o.beta1 = options.beta1.value_or(run.beta1.value_or(o.beta1));
    o.beta2 = options.beta2.value_or(run.beta2.value_or(o.beta2));
    o.eps = options.usual_eps.value_or(run.eps.value_or(o.eps));
    o.weight_decay = run.weight_decay.value_or(o.weight_decay);
    return o;
}

AdamQuestion question_of(const OptimizerOptions& o, const AdamOptions& options) {
    AdamQuestion question{.options = o, .eps = options.eps, .states = options.states, .weights = options.weights};
    if (std::ranges::find(question.eps, o.eps) == question.eps.end()) question.eps.push_back(o.eps);
    std::ranges::sort(question.eps, std::greater<>());
    question.usual_eps = static_cast<std::size_t>(std::ranges::find(question.eps, o.eps) - question.eps.begin());
    std::erase(question.states, format("fp32")); // FP32, with which the others are compared, is always there
    question.states.insert(question.states.begin(), format("fp32"));
    return question;
}

/// The gradients of one parameter, by step.
using Series = std::vector<const RecordedTensor*>;

/// What the log of a run says of its updates; empty without a log.
struct UpdateLog {
    std::vector<std::int64_t> skipped;    ///< the steps that the loss scaler skipped, ascending
    std::map<std::int64_t, double> rates; ///< the learning rate of each step that says it

    explicit UpdateLog(const fs::path& path) {
        if (!is_there(path / run_layout::metrics)) return;
        const auto note_rate = [this](const StepMetrics& m, const nlohmann::ordered_json& line) {
            if (const std::optional<double> rate = number_at(line, "/lr")) rates[m.step] = *rate;
        };
        for (const StepMetrics& m : read_step_log(path, {}, {}, note_rate).steps)
            if (m.found_inf.value_or(false)) skipped.push_back(m.step);
    }
};

class Collector {
  public:
    Collector(const fs::path& path, const AdamOptions& options) : path_(path), options_(options), log_(path) {
        if (options.eps.empty()) throw std::invalid_argument("[adam] expected an eps at least");
        findings_.name = path.string();
        const RunFacts run = run_facts(read_run_configuration(path));
        OptimizerOptions o = optimizer_of(run, options);
        if (o.kind == OptimizerKind::adam && o.weight_decay != 0) {
            findings_.warnings.push_back(findings_.name + ": weight decay, which Adam adds to gradients, is left out");
            o.weight_decay = 0;
        }
        findings_.question = question_of(o, options);
    }

    AdamFindings run(const Watch& watch) {
        const Recording recording = find_tensors({path_});
        findings_.warnings.insert(findings_.warnings.end(), recording.warnings.begin(), recording.warnings.end());
        findings_.errors = recording.errors;
        std::map<std::string, Series> by_name;
        std::vector<std::string> names;
        for (const RecordedTensor& t : recording.tensors) {
            const bool later = options_.step && t.step && *t.step > *options_.step;
            if (t.kind != TensorKind::weight_gradient || later || !matches(options_.tensor, t.entry.name)) continue;
            if (by_name[t.entry.name].empty()) names.push_back(t.entry.name);
            by_name[t.entry.name].push_back(&t);
        }
        if (names.empty() && !findings_.errors.empty()) throw RecordingError(findings_.errors);
        if (names.empty()) throw FileError(path_, "holds no weights' gradients that the options select");
        judge(by_name);
        std::uint64_t work = 0;
        for (const auto& [name, series] : by_name) work += series.back()->entry.count;
        const Progress progress = begin(watch, work);
        for (const std::string& name : names) {
            try {
                measure(name, by_name[name], progress);
            } catch (const FileError& error) {
                add_error(findings_.errors, error);
            }
        }
        if (findings_.tensors.empty()) throw RecordingError(findings_.errors);
        detail::advise(findings_);
        return std::move(findings_);
    }

  private:
    /// Decides how the state is known, the same for all tensors.
    void judge(std::map<std::string, Series>& by_name) {
        std::int64_t last = -1;
        for (auto& [name, series] : by_name) {
            std::ranges::stable_sort(series, {}, [](const RecordedTensor* t) { return t->step; });
            last = std::max(last, series.back()->step.value_or(-1));
        }
        if (last >= 0) findings_.step = last;
        if (const auto rate = log_.rates.find(last); rate != log_.rates.end() && !options_.learning_rate)
            findings_.question.options.learning_rate = rate->second;
        if (std::ranges::find(log_.skipped, last) != log_.skipped.end())
            findings_.warnings.push_back(
                fmt::format("{}: step {} was skipped: its gradients are not finite", findings_.name, last));
        const auto whole = [](const auto& item) {
            const Series& series = item.second;
            return series.front()->step == 0 && series.back()->step == static_cast<std::int64_t>(series.size()) - 1;
        };
        const bool one = std::ranges::all_of(by_name, [](const auto& item) { return item.second.size() == 1; });
        std::error_code none;
        if (last >= 0 && fs::exists(detail::recorded_state(path_, last), none)) findings_.basis = AdamBasis::recorded;
        else if (std::ranges::all_of(by_name, whole)) findings_.basis = AdamBasis::contiguous;
        else findings_.basis = one ? AdamBasis::stationary : AdamBasis::held;
    }

    /// The number of updates in steps [begin, end).
    [[nodiscard]] std::int64_t updates(std::int64_t begin, std::int64_t end) const {
        return end - begin - std::ranges::count_if(log_.skipped, [&](std::int64_t s) { return begin <= s && s < end; });
    }

    /// The number of successive updates with the gradient of a series' element i.
    [[nodiscard]] std::int64_t repeats(const Series& series, std::size_t i) const {
        if (findings_.basis == AdamBasis::stationary) return options_.assumed_steps;
        if (i + 1 == series.size()) return 1;
        const std::optional<std::int64_t> step = series[i]->step, next = series[i + 1]->step;
        return step && next ? updates(*step, *next) : 1;
    }

    AdamSource find(const std::string& name, const Series& series) {
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
        }
        if (!recorded) return source;
        source.first = updates(0, *findings_.step) + 1;
        detail::find_state(open_, detail::recorded_state(path_, *findings_.step), name, last.entry.count, source);
        return source;
    }

    void measure(const std::string& name, const Series& series, const Progress& progress) {
        const AdamSource source = find(name, series);
        const TensorEntry& entry = series.back()->entry;
        const std::uint64_t numbers = entry.count * static_cast<std::uint64_t>(info(entry.dtype).numbers());
        const std::uint64_t block = source.block(open_, numbers);
        AdamHistory nothing; // a tensor without elements counts nothing, but its effects have every state and eps, too
        nothing.gradients.emplace_back();
        nothing.repeats.push_back(1);
        AdamTensor tensor{.name = name, .effects = adam_effects(findings_.question, nothing), .muted_from = {}};
        std::mutex adding; // the order does not matter: all are counts
        for_each_chunk(numbers, block, options_.threads, [&](std::uint64_t begin, std::uint64_t end) {
            const AdamEffects part = adam_effects(findings_.question, source.read(open_, begin, end));
            const std::lock_guard lock(adding);
            tensor.effects.merge(part);
            if (progress) progress(end - begin);
        });
        findings_.total.merge(tensor.effects);
        if (!options_.tensor_ratios)
            for (StateEffects& state : tensor.effects.states)
                for (EpsEffects& eps : state.eps) eps.ratio = {};
        findings_.tensors.push_back(std::move(tensor));
    }

    fs::path path_;
    const AdamOptions& options_;
    UpdateLog log_;
    AdamFindings findings_;
    detail::OpenFiles open_;
};

} // namespace

std::string_view name_of(AdamBasis basis) {
    constexpr std::array<std::string_view, 4> names = {"recorded", "contiguous", "held", "stationary"};
    return names[static_cast<std::size_t>(basis)];
}

std::vector<const AdamTensor*> AdamFindings::most_muted_first() const {
    std::vector<const AdamTensor*> ranked;
    for (const AdamTensor& t : tensors) ranked.push_back(&t);
    std::ranges::stable_sort(ranked, {}, [this](const AdamTensor* t) {
        const AdamEffects& e = t->effects;
        const auto decided = static_cast<double>(e.states.front().eps[question.usual_eps].dominated);
        return std::pair(e.nonzero == 0 ? 0 : -decided / static_cast<double>(e.nonzero), e.root.median());
    });
    return ranked;
}

bool may_be_adam(const RunFacts& run) {
    return run.optimizer.empty() || run.optimizer.find("adam") != std::string::npos;
}

AdamOptions standard_adam_options() {
    AdamOptions options;
    for (int k = 4; k <= 15; ++k) options.eps.push_back(std::stod("1e-" + std::to_string(k)));
    options.states = options.weights = {format("fp32"), format("bf16"), format("fp16")};
    return options;
}

AdamFindings adam_findings(const fs::path& path, const AdamOptions& options, const Watch& watch) {
    const FloatEnvironment environment;
    require_there(path);
    return Collector(path, options).run(watch);
}

} // namespace amp

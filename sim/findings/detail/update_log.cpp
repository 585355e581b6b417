#include <ampscope/sim/findings/detail/update_log.h>

#include <ampscope/sim/base/text.h>
#include <ampscope/sim/io/run_layout.h>
#include <ampscope/sim/io/step_log.h>
#include <ampscope/sim/io/text_file.h>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>

namespace amp::detail {

namespace {

namespace fs = std::filesystem;

/// Settings that differ by step and group, by their keys in a line's "groups".
constexpr std::array<std::pair<const char*, double OptimizerOptions::*>, 5> setting_keys = {
    {{"lr", &OptimizerOptions::learning_rate},
     {"beta1", &OptimizerOptions::beta1},
     {"beta2", &OptimizerOptions::beta2},
     {"eps", &OptimizerOptions::eps},
     {"weight_decay", &OptimizerOptions::weight_decay}}};

/// The optimizer of a run, as far as run.json states it.
OptimizerOptions optimizer_of(const RunFacts& run, const AdamOptions& options) {
    if (run.optimizer == "muon")
        throw std::invalid_argument("the run's optimizer is Muon: what it leaves to AdamW is not told apart here");
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
    o.learning_rate = run.lr.value_or(o.learning_rate);
    o.beta1 = run.beta1.value_or(o.beta1);
    o.beta2 = run.beta2.value_or(o.beta2);
    o.eps = run.eps.value_or(o.eps);
    o.weight_decay = run.weight_decay.value_or(o.weight_decay);
    return o;
}

bool is_finite_throughout(const RecordedTensor& t, OpenFiles& open) {
    constexpr std::uint64_t block = 1 << 18;
    const TensorPlace place{t.file, t.index, t.recorded_scale};
    const std::uint64_t numbers = t.entry.count * static_cast<std::uint64_t>(info(t.entry.dtype).numbers());
    for (std::uint64_t begin = 0; begin < numbers; begin += block)
        if (!std::ranges::all_of(place.read(open, begin, std::min(begin + block, numbers)),
                                 [](float g) { return std::isfinite(g); }))
            return false;
    return true;
}

} // namespace

std::set<std::int64_t> steps_of(const GradientSeries& series) {
    std::set<std::int64_t> steps;
    for (const auto& [name, gradients] : series)
        for (const RecordedTensor* t : gradients)
            if (t->step) steps.insert(*t->step);
    return steps;
}

UpdateLog::UpdateLog(const fs::path& run, const AdamOptions& options, const std::set<std::int64_t>& steps)
    : options_(options) {
    const RunFacts facts = run_facts(read_run_configuration(run));
    recorded_ = optimizer_of(facts, options);
    usual_ = final(recorded_);
    groups_ = facts.groups;
    const fs::path log = run / run_layout::metrics;
    has_steps_ = is_there(log);
    if (!has_steps_) return;
    const auto note = [&](const StepMetrics& m, const nlohmann::ordered_json& line) {
        if (amp::was_skipped(m, line)) skipped_.push_back(m.step);
        if (!steps.contains(m.step)) return;
        try {
            steps_[m.step] = settings_of(line);
            for (const OptimizerOptions& settings : steps_[m.step]) check(settings);
        } catch (const std::invalid_argument& error) {
            throw FileError(log, fmt::format("step {}: {}", m.step, error.what()));
        }
    };
    read_step_log(log, {}, {}, note);
    std::ranges::sort(skipped_); // the file need not be in order
}

std::vector<OptimizerOptions> UpdateLog::settings_of(const nlohmann::ordered_json& line) {
    OptimizerOptions first = recorded_;
    first.learning_rate = number_at(line, "/lr").value_or(first.learning_rate);
    std::vector<OptimizerOptions> all;
    if (const auto groups = line.find("groups"); groups != line.end() && groups->is_array())
        for (const nlohmann::ordered_json& group : *groups) {
            OptimizerOptions own = first;
            for (const auto& [key, setting] : setting_keys)
                own.*setting = number_at(group, fmt::format("/{}", key)).value_or(own.*setting);
            all.push_back(final(own));
        }
    if (all.empty()) all.push_back(final(first));
    return all;
}

OptimizerOptions overridden(OptimizerOptions recorded, const AdamOptions& options) {
    recorded.learning_rate = options.learning_rate.value_or(recorded.learning_rate);
    recorded.beta1 = options.beta1.value_or(recorded.beta1);
    recorded.beta2 = options.beta2.value_or(recorded.beta2);
    recorded.eps = options.usual_eps.value_or(recorded.eps);
    return recorded;
}

OptimizerOptions UpdateLog::final(OptimizerOptions recorded) {
    recorded = overridden(recorded, options_);
    if (recorded.kind == OptimizerKind::adam && recorded.weight_decay != 0) {
        leaves_out_decay_ = true;
        recorded.weight_decay = 0;
    }
    return recorded;
}

const OptimizerOptions& UpdateLog::settings(const std::string& gradient,
                                            const std::optional<std::int64_t>& step) const {
    const auto found = step ? steps_.find(*step) : steps_.end();
    if (found == steps_.end()) return usual_;
    const auto group = groups_.find(parameter_of(gradient));
    const std::size_t own = group == groups_.end() ? 0 : group->second;
    return found->second[own < found->second.size() ? own : 0];
}

std::int64_t UpdateLog::updates(std::int64_t begin, std::int64_t end) const {
    return end - begin - std::ranges::count_if(skipped_, [&](std::int64_t s) { return begin <= s && s < end; });
}

bool UpdateLog::was_skipped(std::int64_t step) const { return std::ranges::binary_search(skipped_, step); }

void UpdateLog::leave_out_skipped(GradientSeries& series, OpenFiles& open) {
    const std::set<std::int64_t> steps = steps_of(series);
    if (!has_steps_) {
        std::set<std::int64_t> overflowed;
        for (const auto& [name, gradients] : series)
            for (const RecordedTensor* t : gradients)
                if (t->step && t->recorded_scale != 1 && !overflowed.contains(*t->step) &&
                    !is_finite_throughout(*t, open))
                    overflowed.insert(*t->step);
        skipped_.assign(overflowed.begin(), overflowed.end());
    }
    if (std::ranges::all_of(steps, [&](std::int64_t step) { return was_skipped(step); })) return;
    const auto is_left_out = [&](const RecordedTensor* t) {
        return t->step && was_skipped(*t->step) && t->step != options_.step;
    };
    for (auto& [name, gradients] : series) std::erase_if(gradients, is_left_out);
    std::erase_if(series, [](const auto& item) { return item.second.empty(); });
}

} // namespace amp::detail

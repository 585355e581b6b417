// Where the runs of a comparison became unstable, in numbers and in sentences.
#include <ampscope/sim/findings/alarms.h>
#include <ampscope/sim/findings/detail/seeds.h>

#include <ampscope/sim/base/text.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

namespace amp {

namespace {

constexpr SpikeKind spike_kinds[] = {SpikeKind::not_finite, SpikeKind::gradient, SpikeKind::loss};

/// FP32's run of the same seed; null if there is none, or `row` is FP32's.
const RecordedRun* reference_of(const RecordedRun& run, const ComparisonRow& row, const ComparisonRow* reference) {
    if (reference == nullptr || reference == &row) return nullptr;
    for (const auto& [ours, theirs] : detail::pairs_of(row, *reference))
        if (std::ranges::find(ours.runs, &run) != ours.runs.end()) return theirs.runs.front();
    return nullptr;
}

/// The lower of two in the middle; moves them about.
double median_of(std::vector<double>& values) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
    std::ranges::nth_element(values, middle);
    return *middle;
}

/// The runs of a row with a spike of that kind.
std::vector<const RunSpikes*> runs_with(const ComparisonRow& row, SpikeKind kind) {
    std::vector<const RunSpikes*> with;
    for (const RunSpikes& run : row.stability)
        if (run.worst(kind) != nullptr) with.push_back(&run);
    return with;
}

/// "3 of 8 runs".
std::string runs_text(std::size_t with, std::size_t all) { return fmt::format("{} of {}", with, plural(all, "run")); }

/// The precisions with spikes of a kind, in all groups together: "pure-fp16 (16 of 16 runs)".
std::vector<std::string> precisions_with(const std::vector<ComparisonGroup>& groups, SpikeKind kind) {
    struct Count {
        std::string label;
        std::size_t with = 0, all = 0;
    };
    std::vector<Count> counts;
    for (const ComparisonGroup& group : groups)
        for (const ComparisonRow& row : group.rows) {
            auto found = std::ranges::find(counts, row.label, &Count::label);
            if (found == counts.end()) found = counts.insert(found, {.label = row.label});
            found->with += runs_with(row, kind).size();
            found->all += row.stability.size();
        }
    std::vector<std::string> names;
    for (const Count& c : counts)
        if (c.with > 0) names.push_back(fmt::format("{} ({})", c.label, runs_text(c.with, c.all)));
    return names;
}

/// Alarms of one kind, and the precisions that gave them.
struct KindOfAlarm {
    std::string what, precisions;
    [[nodiscard]] std::string text() const { return what + ": " + precisions; }
};

/// The kinds of alarms that occur, the gravest first.
std::vector<KindOfAlarm> kinds_of_alarms(const std::vector<ComparisonGroup>& groups, const SpikeLimits& limits) {
    std::vector<KindOfAlarm> alarms;
    for (const auto& [kind, what] :
         {std::pair{SpikeKind::not_finite, std::string("NaN or infinite")},
          {SpikeKind::gradient, fmt::format("gradients above {:g} times their level", limits.gradient)},
          {SpikeKind::loss, std::string("a loss that leaps")}})
        if (const auto names = precisions_with(groups, kind); !names.empty())
            alarms.push_back({what, detail::listed(names)});
    return alarms;
}

/// Recorded gradients that are not finite, as a spike; none if there are none, or if the log tells of one itself.
std::optional<Spike> recorded_spike(const RunSpikes& of) {
    const std::set<std::int64_t>& steps = of.run->nonfinite.steps;
    if (steps.empty() || of.worst(SpikeKind::not_finite) != nullptr) return std::nullopt;
    const std::int64_t first = *steps.begin(), last = *steps.rbegin();
    return Spike{.kind = SpikeKind::not_finite,
                 .first = first,
                 .last = last,
                 .peak = first,
                 .steps = steps.size(),
                 .lasts = steps.size() > 1 && last == of.run->columns.last,
                 .growth = {.tensor = of.run->nonfinite.first,
                            .evidence = "the gradients as recorded",
                            .step = first,
                            .since = first,
                            .factor = HUGE_VAL,
                            .recorded = true}};
}

/// " The first tensor is h.0.weight.grad, in step 2.": of gradients alone, which no log tells more of.
std::string first_tensor(const std::vector<ComparisonGroup>& groups) {
    const Spike* first = nullptr;
    for (const ComparisonGroup& group : groups)
        for (const ComparisonRow& row : group.rows)
            for (const RunSpikes& run : row.stability)
                if (const Spike* spike = run.worst(SpikeKind::not_finite); spike != nullptr && run.run->steps.empty())
                    if (first == nullptr || spike->first < first->first) first = spike;
    if (first == nullptr) return "";
    return fmt::format(" The first tensor is {}, in step {}.", first->growth.tensor, first->first);
}

} // namespace

RowStability stability_of(const ComparisonRow& row) {
    RowStability of;
    std::vector<double> sizes;
    for (const RunSpikes& run : row.stability) {
        of.alarmed += run.spikes.empty() ? 0U : 1U;
        for (const Spike& s : run.spikes)
            if (s.kind == SpikeKind::not_finite)
                of.not_finite_from = std::min(s.first, of.not_finite_from.value_or(s.first));
        for (const auto& [step, size] : run.sizes) {
            sizes.push_back(size);
            if (size <= of.largest.value_or(-1)) continue;
            of.largest = size;
            of.largest_in = step;
        }
    }
    if (!sizes.empty()) of.usual = median_of(sizes);
    return of;
}

std::vector<StretchSizes> gradient_curve(const ComparisonRow& row, std::int64_t stretch) {
    std::map<std::int64_t, std::vector<double>> sizes; // by the number of the stretch
    for (const RunSpikes& run : row.stability)
        for (const auto& [step, size] : run.sizes) sizes[step / stretch].push_back(size);
    std::vector<StretchSizes> curve;
    for (auto& [k, values] : sizes) {
        const auto [least, largest] = std::ranges::minmax(values);
        curve.push_back({k * stretch, least, median_of(values), largest});
    }
    return curve;
}

void detail::find_instabilities(ComparisonGroup& group, const SpikeLimits& limits, int threads) {
    for (ComparisonRow& row : group.rows)
        for (const RecordedRun* run : row.runs) {
            row.stability.push_back(find_spikes(*run, reference_of(*run, row, group.reference), limits));
            find_growth(row.stability.back(), threads);
            if (const auto spike = recorded_spike(row.stability.back()))
                row.stability.back().spikes.insert(row.stability.back().spikes.begin(), *spike);
        }
}

std::optional<ShortAnswer> detail::stability_answer(const std::vector<ComparisonGroup>& groups,
                                                    const SpikeLimits& limits) {
    const std::vector<KindOfAlarm> alarms = kinds_of_alarms(groups, limits);
    if (alarms.empty()) return std::nullopt;
    ShortAnswer answer{
        .question = "Stability", .words = alarms.front().what, .reason = {}, .state = ShortAnswer::State::alarm};
    answer.words.front() = upper_case(answer.words.substr(0, 1)).front();
    for (const KindOfAlarm& alarm : alarms)
        answer.reason += &alarm == &alarms.front() ? alarm.precisions : "; " + alarm.text();
    answer.reason += "." + first_tensor(groups);
    return answer;
}

std::string detail::about_stability(const std::vector<ComparisonGroup>& groups, const SpikeLimits& limits) {
    const auto logs_any = [](const ComparisonRow& row) {
        return std::ranges::any_of(row.runs, [](const RecordedRun* run) { return !run->steps.empty(); });
    };
    std::vector<std::string> parts;
    for (const KindOfAlarm& alarm : kinds_of_alarms(groups, limits)) parts.push_back(alarm.text());
    const bool any_log =
        std::ranges::any_of(groups, [&](const auto& g) { return std::ranges::any_of(g.rows, logs_any); });
    if (parts.empty() && !any_log) return "";
    if (parts.empty())
        return fmt::format("Stability: no alarm: nothing became NaN or infinite, no gradients rose above {:g} times "
                           "their level, no loss leapt.",
                           limits.gradient);
    return fmt::format("Stability: {}.", fmt::join(parts, "; "));
}

std::vector<std::string> detail::alarms_of(const std::vector<ComparisonGroup>& groups, const SpikeLimits& limits) {
    std::vector<NamedAlarm> alarms;
    for (const ComparisonGroup& group : groups)
        for (const ComparisonRow& row : group.rows)
            for (const SpikeKind kind : spike_kinds) {
                const std::vector<const RunSpikes*> with = runs_with(row, kind);
                if (with.empty()) continue;
                const auto size = [&](const RunSpikes* run) {
                    const Spike& s = *run->worst(kind);
                    return kind == SpikeKind::not_finite ? -static_cast<double>(s.first) : s.size();
                };
                const RunSpikes& worst = **std::ranges::max_element(with, {}, size);
                std::string text = spike_text(*worst.worst(kind), worst, limits);
                if (row.stability.size() > 1)
                    text = fmt::format("{} gave this alarm,{} {}: {}", runs_text(with.size(), row.stability.size()),
                                       with.size() == 1                ? ""
                                       : kind == SpikeKind::not_finite ? " the first of them"
                                                                       : " the worst of them",
                                       worst.run->name, text);
                alarms.push_back({fmt::format("{}, {}", group.name, row.label), std::move(text)});
            }
    return alarm_lines(alarms);
}

} // namespace amp

// Runs of the same seed: their pairs, and how their losses differ over the steps.
#include <ampscope/sim/findings/detail/seeds.h>

#include <algorithm>
#include <cmath>
#include <map>

namespace amp {

namespace {

bool has_diverged(const RecordedRun& run) {
    const std::optional<double> loss = run.final_loss();
    return loss && !std::isfinite(*loss);
}

} // namespace

bool detail::Seed::diverged() const {
    return std::ranges::any_of(runs, [](const RecordedRun* r) { return has_diverged(*r); });
}

std::optional<double> detail::Seed::mean(const Quantity& of) const {
    std::vector<double> values;
    for (const RecordedRun* run : runs) {
        const std::optional<double> x = of(*run);
        if (!x || !std::isfinite(*x) || has_diverged(*run)) return std::nullopt;
        values.push_back(*x);
    }
    return spread_of(values).mean;
}

std::vector<detail::Seed> detail::seeds_of(const ComparisonRow& row) {
    std::vector<Seed> seeds;
    for (const RecordedRun* run : row.runs) {
        const std::optional<double> seed = seed_of(*run);
        const auto found = std::ranges::find_if(seeds, [&](const Seed& s) { return seed && s.seed == seed; });
        if (found == seeds.end()) seeds.push_back({seed, {run}});
        else found->runs.push_back(run);
    }
    return seeds;
}

std::vector<std::pair<detail::Seed, detail::Seed>> detail::pairs_of(const ComparisonRow& row,
                                                                    const ComparisonRow& other) {
    std::vector<std::pair<Seed, Seed>> pairs;
    const std::vector<Seed> ours = seeds_of(row), theirs = seeds_of(other);
    if (ours.size() == 1 && theirs.size() == 1 && !(ours[0].seed && theirs[0].seed)) return {{ours[0], theirs[0]}};
    for (const Seed& s : ours)
        for (const Seed& t : theirs)
            if (s.seed && s.seed == t.seed) pairs.emplace_back(s, t);
    return pairs;
}

std::vector<StretchLoss> loss_curve(const RecordedRun& run, std::int64_t stretch) {
    std::vector<StretchLoss> curve;
    for (std::size_t i = 0; i < run.steps.size();) {
        const std::int64_t begin = run.steps[i].step;
        double sum = 0, count = 0;
        for (; i < run.steps.size() && run.steps[i].step < begin + stretch; ++i)
            if (run.steps[i].loss) {
                sum += *run.steps[i].loss;
                ++count;
            }
        if (count > 0) curve.push_back({begin, sum / count});
    }
    return curve;
}

std::vector<std::pair<std::int64_t, double>> step_differences(const RecordedRun& run, const RecordedRun& other) {
    std::map<std::int64_t, double> losses;
    for (const StepMetrics& m : other.steps)
        if (m.loss && std::isfinite(*m.loss)) losses[m.step] = *m.loss;
    std::vector<std::pair<std::int64_t, double>> differences;
    for (const StepMetrics& m : run.steps)
        if (const auto found = losses.find(m.step); m.loss && std::isfinite(*m.loss) && found != losses.end())
            differences.emplace_back(m.step, *m.loss - found->second);
    return differences;
}

std::vector<StretchDifference> difference_curve(const ComparisonRow& row, const ComparisonRow& reference,
                                                std::int64_t stretch, double alpha) {
    std::map<std::int64_t, std::vector<double>> means; // of each seed, by the number of the stretch
    for (const auto& [ours, theirs] : detail::pairs_of(row, reference)) {
        std::map<std::int64_t, std::vector<double>> steps;
        for (const auto& [step, difference] : step_differences(*ours.runs.front(), *theirs.runs.front()))
            steps[step / stretch].push_back(difference);
        for (const auto& [k, values] : steps) means[k].push_back(spread_of(values).mean);
    }
    std::vector<StretchDifference> curve;
    for (const auto& [k, values] : means) curve.push_back({k * stretch, mean_interval(values, alpha)});
    return curve;
}

} // namespace amp

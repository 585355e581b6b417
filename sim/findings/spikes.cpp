#include <ampscope/sim/findings/spikes.h>

#include <ampscope/sim/analysis/series.h>
#include <ampscope/sim/base/text.h>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace amp {

namespace {

constexpr std::size_t least_before = 10; // steps before without which nothing is called unusual
constexpr double least_jump = 0.1;       // of a loss: so much of its median

using Size = std::optional<double> StepMetrics::*;

/// What a log has of the size of gradients: their norm, or else the largest; null if it has neither.
Size size_in(const RecordedRun& run) {
    for (const Size size : {&StepMetrics::gradient_norm, &StepMetrics::amax_weight})
        if (std::ranges::any_of(run.steps, [&](const StepMetrics& m) { return (m.*size).has_value(); })) return size;
    return nullptr;
}

/// The steps of a run one after the other, looked up in ascending order.
class StepsOf {
  public:
    explicit StepsOf(const RecordedRun* run) : run_(run) {}
    const StepMetrics* at(std::int64_t step) {
        if (run_ == nullptr) return nullptr;
        while (next_ < run_->steps.size() && run_->steps[next_].step < step) ++next_;
        return next_ < run_->steps.size() && run_->steps[next_].step == step ? &run_->steps[next_] : nullptr;
    }

  private:
    const RecordedRun* run_;
    std::size_t next_ = 0;
};

class SpikeFinder {
  public:
    SpikeFinder(const RecordedRun& run, const RecordedRun* reference, const SpikeLimits& limits)
        : limits_(limits), size_(size_in(run)), own_(window()), theirs_(window()), losses_(window()) {
        of_.run = &run;
        of_.norms = size_ != &StepMetrics::amax_weight;
        if (reference != nullptr && size_ != nullptr && size_in(*reference) == size_) of_.reference = reference;
        StepsOf other(reference);
        for (const StepMetrics& m : run.steps) {
            const StepMetrics* same = other.at(m.step);
            look_for_nonfinite(m);
            if (size_ != nullptr) look_at_gradients(m, of_.reference != nullptr ? same : nullptr);
            look_at_loss(m, same);
        }
        for (Spike& spike : of_.spikes) spike.lasts = spike.last == run.steps.back().step;
        std::ranges::stable_sort(of_.spikes, {}, &Spike::kind);
    }
    RunSpikes found() { return std::move(of_); }

  private:
    [[nodiscard]] std::size_t window() const { return static_cast<std::size_t>(limits_.window); }

    void note(SpikeKind kind, std::int64_t step, double value, double level) {
        std::optional<std::size_t>& last = last_[static_cast<std::size_t>(kind)];
        if (!last || step - of_.spikes[*last].last > limits_.window) {
            last = of_.spikes.size();
            of_.spikes.push_back({.kind = kind, .first = step, .peak = step, .value = value, .level = level});
        }
        Spike& spike = of_.spikes[*last];
        spike.last = step;
        ++spike.steps;
        if (value <= spike.value) return;
        spike.peak = step;
        spike.value = value;
        spike.level = level;
    }

    void look_for_nonfinite(const StepMetrics& m) {
        const bool skipped = std::ranges::binary_search(of_.run->skipped, m.step);
        if ((m.loss && !std::isfinite(*m.loss)) || (m.found_inf.value_or(false) && !skipped))
            note(SpikeKind::not_finite, m.step, 0, 0);
    }

    void look_at_gradients(const StepMetrics& m, const StepMetrics* same) {
        const std::optional<double> theirs = same != nullptr ? same->*size_ : std::nullopt;
        RunningMedian& before = of_.reference != nullptr ? theirs_ : own_;
        const double level = std::max(theirs.value_or(0), before.count() >= least_before ? before.median() : 0);
        if (theirs) theirs_.add(*theirs);
        const std::optional<double> size = m.*size_;
        if (!size) return;
        own_.add(*size);
        if (!(level > 0)) return;
        of_.sizes.emplace_back(m.step, *size / level);
        if (*size > limits_.gradient * level) note(SpikeKind::gradient, m.step, *size, level);
    }

    void look_at_loss(const StepMetrics& m, const StepMetrics* same) {
        if (!m.loss || !std::isfinite(*m.loss)) return;
        if (losses_.count() >= least_before) {
            const double level = losses_.median(), least = least_jump * std::abs(level);
            const double bound = *m.loss - level > least ? std::max(limits_.loss * losses_.deviation(), least) : least;
            const bool shared = same != nullptr && same->loss && !(*m.loss - *same->loss > bound); // a hard batch
            if (*m.loss - level > bound && !shared) note(SpikeKind::loss, m.step, *m.loss, level);
        }
        losses_.add(*m.loss);
    }

    const SpikeLimits& limits_;
    Size size_;
    RunningMedian own_, theirs_, losses_;
    std::array<std::optional<std::size_t>, 3> last_; ///< the last spike of each kind
    RunSpikes of_;
};

std::string growth_text(const TensorGrowth& g) {
    if (g.tensor.empty())
        return g.recorded ? "none of the tensors recorded in these steps grew to twice its magnitude"
                          : "which tensor grew is not known, since none was recorded in these steps";
    if (!std::isfinite(g.factor))
        return fmt::format("the first tensor that was not finite is {}, in step {} ({})", g.tensor, g.step, g.evidence);
    return fmt::format("{} grew most, {:.3g} times from step {} to {} ({}){}", g.tensor, g.factor, g.since, g.step,
                       g.evidence, g.recorded ? "" : "; no single tensor was recorded in these steps");
}

std::string spike_fact(const Spike& s, const RunSpikes& of, const SpikeLimits& limits) {
    const std::string before = fmt::format("the median of the {} steps before", limits.window);
    switch (s.kind) {
    case SpikeKind::not_finite:
        return fmt::format("{} gradient was NaN or infinite", of.run->steps.empty() ? "a recorded" : "its loss or a");
    case SpikeKind::gradient:
        return fmt::format("its {} was {:.3g} in step {}, {:.3g} times {}",
                           of.norms ? "gradient norm" : "largest gradient", s.value, s.peak, s.size(),
                           of.reference != nullptr ? "FP32's" : before);
    case SpikeKind::loss:
        return fmt::format("its loss was {:.3g} in step {}, where {} is {:.3g}", s.value, s.peak, before, s.level);
    }
    return "";
}

} // namespace

std::string_view name_of(SpikeKind kind) {
    constexpr std::array<std::string_view, 3> names = {"not finite", "gradient", "loss"};
    return names[static_cast<std::size_t>(kind)];
}

const Spike* RunSpikes::worst(SpikeKind kind) const {
    const Spike* worst = nullptr;
    for (const Spike& s : spikes)
        if (s.kind == kind && (worst == nullptr || s.size() > worst->size())) worst = &s;
    return worst;
}

RunSpikes find_spikes(const RecordedRun& run, const RecordedRun* reference, const SpikeLimits& limits) {
    if (run.steps.empty()) return {.run = &run, .reference = nullptr, .norms = true, .sizes = {}, .spikes = {}};
    return SpikeFinder(run, reference, limits).found();
}

std::string spike_text(const Spike& s, const RunSpikes& of, const SpikeLimits& limits) {
    std::string span;
    if (s.kind == SpikeKind::not_finite && s.lasts) span = fmt::format(" from step {} on", s.first);
    else if (s.kind == SpikeKind::not_finite && s.steps == 1) span = fmt::format(" in step {}", s.first);
    else if (s.steps > 1) span = fmt::format(" ({} from {} to {})", plural(s.steps, "step"), s.first, s.last);
    return fmt::format("{}{}; {}", spike_fact(s, of, limits), span, growth_text(s.growth));
}

} // namespace amp

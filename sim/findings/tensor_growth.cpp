// Which tensor grew before a spike, from what a run's folder holds.
#include <ampscope/sim/findings/spikes.h>

#include <ampscope/sim/analysis/histogram_log.h>
#include <ampscope/sim/io/run_layout.h>
#include <ampscope/sim/io/text_file.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>

namespace amp {

namespace {

namespace layout = run_layout;
using Json = nlohmann::ordered_json;

constexpr double least_growth = 2; // what less than doubles does not stand out among batches
constexpr double infinite = std::numeric_limits<double>::infinity();

/// Compares the largest magnitude of each tensor in the first recorded step of a spike with that in the last step
/// before. Steps come in ascending order.
class Growths {
  public:
    /// Of the spikes that no other evidence explains. `single`: what is added are tensors, not kinds of them.
    Growths(std::span<Spike> spikes, std::string evidence, bool single = true)
        : evidence_(std::move(evidence)), single_(single) {
        for (Spike& s : spikes) {
            if (asked_.empty() || asked_.back().kind != s.kind) asked_.push_back({.kind = s.kind});
            if (s.growth.tensor.empty()) asked_.back().spikes.push_back({&s, std::nullopt});
        }
    }

    [[nodiscard]] bool is_idle() const {
        return std::ranges::all_of(asked_, [](const OfKind& k) { return k.spikes.empty(); });
    }

    /// `largest` is infinite if the tensor is not finite.
    void add(std::int64_t step, const std::string& tensor, double largest) {
        auto& [since, before] = before_[tensor];
        for (OfKind& of : asked_) {
            while (of.next < of.spikes.size() && of.spikes[of.next].first->last < step) ++of.next;
            if (of.next == of.spikes.size()) continue;
            auto& [spike, recorded] = of.spikes[of.next];
            if (step < spike->first || step != recorded.value_or(step)) continue;
            recorded = step;
            spike->growth.recorded = spike->growth.recorded || single_;
            const double factor = std::isfinite(largest) ? before > 0 ? largest / before : 0 : infinite;
            if (factor < least_growth || factor <= spike->growth.factor) continue;
            spike->growth = {.tensor = tensor,
                             .evidence = evidence_,
                             .step = step,
                             .since = since,
                             .factor = factor,
                             .recorded = spike->growth.recorded};
        }
        if (!std::isfinite(largest)) return;
        since = step;
        before = largest;
    }

    /// The steps that add() needs, of those that were recorded: ascending.
    [[nodiscard]] std::vector<std::int64_t> steps_of_interest(const std::vector<std::int64_t>& recorded) const {
        std::vector<std::int64_t> steps;
        for (const OfKind& of : asked_)
            for (const auto& [spike, none] : of.spikes) {
                const auto at = std::ranges::lower_bound(recorded, spike->first);
                if (at == recorded.end() || *at > spike->last) continue;
                if (at != recorded.begin()) steps.push_back(*std::prev(at));
                steps.push_back(*at);
            }
        std::ranges::sort(steps);
        return steps;
    }

  private:
    struct Before {
        std::int64_t step = 0;
        double largest = 0;
    };
    /// The spikes of a kind: one after another, so that a step is in one of them at most.
    struct OfKind {
        SpikeKind kind{};
        std::vector<std::pair<Spike*, std::optional<std::int64_t>>> spikes{}; ///< with the step that is compared
        std::size_t next = 0; ///< the first that does not end before the steps that were added
    };
    std::string evidence_;
    bool single_;
    std::vector<OfKind> asked_;
    std::unordered_map<std::string, Before> before_;
};

/// The largest binade of recorded values, without the loss scale.
double largest_of(const RecordedMagnitudes& m) {
    if (m.magnitudes.inf + m.magnitudes.nan > 0) return infinite;
    return m.magnitudes.rows.empty() ? 0 : std::ldexp(1.0, m.magnitudes.rows.rbegin()->first) / m.scale;
}

/// A departure is the cause if it was seen in the spike, or in the step before, whose update showed in the next loss.
void use_departures(const RecordedRun& run, std::span<Spike> spikes) {
    for (Spike& s : spikes) {
        if (s.kind != SpikeKind::not_finite) continue;
        for (const RecordedDeparture& d : run.departures) {
            if ((d.kind != "inf" && d.kind != "NaN") || !d.step || !(std::abs(*d.step) < 0x1p53)) continue;
            const auto step = static_cast<std::int64_t>(*d.step);
            if (step < s.first - 1 || step > s.last || (!s.growth.tensor.empty() && step >= s.growth.step)) continue;
            s.growth = {.tensor = d.tensor + " (" + d.op + ")",
                        .evidence = std::string(layout::result) + ", departures",
                        .step = step,
                        .since = step,
                        .factor = infinite,
                        .recorded = true};
        }
    }
}

void use_histograms(const RecordedRun& run, std::span<Spike> spikes) {
    Growths growths(spikes, layout::histograms);
    if (growths.is_idle() || !is_there(run.path / layout::histograms)) return;
    std::vector<std::string> told; // before, when the run was read
    const auto add = [&](const RecordedMagnitudes& m) { growths.add(m.step, m.tensor, largest_of(m)); };
    read_histogram_log(run.path / layout::histograms, add, told);
}

void use_recorded_tensors(const RecordedRun& run, std::span<Spike> spikes, int threads) {
    Growths growths(spikes, std::string(layout::gradients) + "/");
    if (growths.is_idle() || !is_there(run.path / layout::gradients)) return;
    Recording recording = find_tensors({run.path});
    std::vector<std::int64_t> steps;
    for (const RecordedTensor& t : recording.tensors)
        if (t.step) steps.push_back(*t.step);
    std::ranges::sort(steps);
    steps = growths.steps_of_interest(steps);
    std::erase_if(recording.tensors,
                  [&](const RecordedTensor& t) { return !t.step || !std::ranges::binary_search(steps, *t.step); });
    std::ranges::stable_sort(recording.tensors, {}, [](const RecordedTensor& t) { return *t.step; });
    std::vector<std::string> told;
    const auto add = [&](const RecordedMagnitudes& m) { growths.add(m.step, m.tensor, largest_of(m)); };
    measure_gradients(recording, threads, add, told);
}

void use_casts(const RecordedRun& run, std::span<Spike> spikes) {
    Growths growths(spikes, std::string(layout::metrics) + ", casts under a scale");
    if (growths.is_idle() || run.scaled_tensors.empty()) return;
    LogColumns columns;
    columns.losses_suffice = true;
    read_step_log(run.path, columns, {}, [&](const StepMetrics& m, const Json& line) {
        const auto scaling = line.find("scaling");
        if (scaling == line.end() || !scaling->is_object()) return;
        for (const auto& [tensor, cast] : scaling->items()) {
            const auto amax = cast.find("amax");
            if (amax == cast.end() || !(amax->is_number() || amax->is_null())) continue;
            growths.add(m.step, tensor, amax->is_null() ? infinite : amax->get<double>());
        }
    });
}

void use_kinds(const RecordedRun& run, std::span<Spike> spikes) {
    Growths growths(spikes, std::string(layout::metrics) + ", by kind alone", false);
    for (const StepMetrics& m : run.steps) {
        if (growths.is_idle()) return;
        if (m.amax_weight) growths.add(m.step, "the gradients of weights", *m.amax_weight);
        if (m.amax_activation) growths.add(m.step, "the gradients of activations", *m.amax_activation);
    }
}

} // namespace

void find_growth(RunSpikes& of, int threads) {
    const RecordedRun& run = *of.run;
    const std::span<Spike> spikes = of.spikes;
    if (spikes.empty()) return;
    const auto attempt = [](const auto& use) {
        try {
            use();
        } catch (const std::exception&) { // what cannot be read was told when the run was read
        }
    };
    use_departures(run, spikes);
    attempt([&] { use_histograms(run, spikes); });
    attempt([&] { use_recorded_tensors(run, spikes, threads); });
    attempt([&] { use_casts(run, spikes); });
    use_kinds(run, spikes);
}

} // namespace amp

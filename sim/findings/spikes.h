// Where a training became unstable: steps whose gradients or loss leap, or are not finite, and which tensor grew.
#pragma once

#include <ampscope/sim/findings/recorded_run.h>

#include <string>
#include <utility>
#include <vector>

namespace amp {

/// What is a spike.
struct SpikeLimits {
    /// A gradient norm above so many times its level: FP32's in the same step, but at least FP32's median of the steps
    /// before; without an FP32 run the run's own median. Norms of batches vary about their median by a factor of less
    /// than two (their logarithms by 0.3 to 0.5): ten times is five deviations, once in millions of steps.
    double gradient = 10;
    /// A loss above the run's own median of the steps before by so many of their deviations (1.4826 times the median
    /// distance from the median) and by a tenth of it, which FP32's in the same step is not.
    double loss = 10;
    int window = 50; ///< steps before that medians are taken of; spikes that are no farther apart are one
};

enum class SpikeKind : std::uint8_t {
    not_finite, ///< the loss is NaN or infinite, or a gradient, logged or recorded, of a step not skipped
    gradient,
    loss
};
/// "not finite", "gradient" or "loss".
std::string_view name_of(SpikeKind kind);

/// The tensor whose largest magnitude grew most before a spike.
struct TensorGrowth {
    std::string tensor{};   ///< empty: none that grew is recorded
    std::string evidence{}; ///< the file that tells it: "histograms.jsonl", "result.json (departures)"
    std::int64_t step = 0;  ///< the first step of the spike that is recorded there
    std::int64_t since = 0; ///< the recorded step before it
    double factor = 0;      ///< the factor by which it grew between these steps; infinite: it became infinite or NaN
    bool recorded = false;  ///< whether single tensors were recorded in a step of the spike, grown or not
};

struct Spike {
    SpikeKind kind = SpikeKind::not_finite;
    std::int64_t first = 0, last = 0, peak = 0; ///< the steps that are above the limit, and the one with largest value
    std::size_t steps = 0;                      ///< number of steps above the limit
    double value = 0, level = 0; ///< at the peak: the gradient norm or the loss, and its level; 0 if not finite
    bool lasts = false;          ///< whether it lasts up to the last step of the log
    TensorGrowth growth{};

    [[nodiscard]] double size() const { return level > 0 ? value / level : value; } ///< the value over its level
};

/// What one run's log says.
struct RunSpikes {
    const RecordedRun* run = nullptr;
    const RecordedRun* reference = nullptr; ///< FP32's run of the same seed, if its gradients are the level
    bool norms = true;                      ///< sizes are those of gradient norms; else of the largest gradient
    std::vector<std::pair<std::int64_t, double>> sizes; ///< steps, each with the size of its gradients over their level
    std::vector<Spike> spikes;                          ///< by kind and step

    /// The largest of a kind; null without any: that of gradients farthest above its level, the first that is not
    /// finite.
    [[nodiscard]] const Spike* worst(SpikeKind kind) const;
};

/// Finds the spikes of a run, without the tensors that grew; `reference` may be null.
RunSpikes find_spikes(const RecordedRun& run, const RecordedRun* reference, const SpikeLimits& limits);

/// Finds the tensor that grew for each spike, in what the run's folder holds for a step of the spike: where
/// its first NaN or infinity was (result.json), magnitudes of gradients (histograms.jsonl, or recorded tensors), those
/// of casts under a scale (metrics.jsonl), the largest gradients of weights and activations (likewise). What cannot be
/// read counts as not recorded.
void find_growth(RunSpikes& of, int threads);

/// The spike in words that can follow the run's name and a colon: "its gradient norm was 3.1 in step 137, ...".
std::string spike_text(const Spike& spike, const RunSpikes& of, const SpikeLimits& limits);

} // namespace amp

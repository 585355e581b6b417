#include <ampscope/sim/findings/loss_scale.h>

#include <ampscope/formats/codec.h>
#include <ampscope/formats/environment.h>
#include <ampscope/sim/base/tensor_names.h>
#include <ampscope/sim/base/text.h>

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace amp {

namespace {

std::uint64_t count(std::int64_t n) { return static_cast<std::uint64_t>(n); }

MagnitudeHistogram recorded_in(const GradientLog& log) {
    MagnitudeHistogram all;
    for (const GradientStep& step : log.steps) all.merge(step.magnitudes);
    return all;
}

/// Whether gradients of activations were recorded, of which those of weights are sums.
bool records_activations(const GradientLog& log) {
    return std::ranges::any_of(log.steps, [](const GradientStep& step) { return step.censoring.terms; });
}

/// Some steps of a log.
struct SomeSteps {
    std::uint64_t count = 0;
    const GradientStep* first = nullptr; ///< none if there are none

    /// "1 of 3 steps, step 1"
    [[nodiscard]] std::string text(const GradientLog& log) const {
        return fmt::format("{} of {}, {}step {}", grouped(count), plural(log.steps.size(), "step"),
                           count == 1 ? "" : "first ", first->step);
    }
};

template <class Condition>
SomeSteps steps_that(const GradientLog& log, const Condition& condition) {
    SomeSteps found;
    for (const GradientStep& step : log.steps) {
        if (step.hidden || !condition(step)) continue;
        if (found.count++ == 0) found.first = &step;
    }
    return found;
}

/// The steps that every scaler skips, whatever its scale, as their loss was NaN; in a sentence that others follow.
/// Empty if there are none.
std::string about_nan_loss(const GradientLog& log) {
    const SomeSteps lost = steps_that(log, [](const GradientStep& step) { return step.overflow_scale == 0; });
    if (lost.count == 0) return "";
    return fmt::format("In {}, the loss itself is NaN: every scaler skips {}, and no scale mends {}; what follows is "
                       "about the other steps. ",
                       lost.text(log), lost.count == 1 ? "it" : "them", lost.count == 1 ? "it" : "them");
}

/// The steps of which no recorded gradient was finite under a loss scale, in a sentence that others follow. Empty if
/// there are none.
std::string about_nothing_finite(const GradientLog& log) {
    const SomeSteps nothing = steps_that(log, [](const GradientStep& step) {
        const MagnitudeHistogram& h = step.magnitudes;
        const bool under_scale = step.overflow_scale > 1 && step.overflow_scale < std::numeric_limits<double>::max();
        return under_scale && h.count() > 0 && h.nan + h.inf == h.count();
    });
    if (nothing.count == 0) return "";
    return fmt::format("In {}, no recorded gradient is finite: the scale of the record, {}, is too large there, or the "
                       "network made NaN; which of the two, it does not tell. ",
                       nothing.text(log), scale_text(nothing.first->overflow_scale));
}

/// The steps that every scaler skips, whatever its scale, as gradients were not finite even unscaled; in a sentence
/// that others follow. Empty if there are none.
std::string about_broken(const GradientLog& log) {
    const SomeSteps broken =
        steps_that(log, [](const GradientStep& step) { return step.overflow_scale > 0 && step.overflow_scale <= 1; });
    if (broken.count == 0) return "";
    const std::string& tensor = broken.first->largest;
    return fmt::format("{}{}, {} NaN or infinity as recorded, so that every scaler skips {} at any scale from 1 "
                       "on; what follows is about the other gradients. ",
                       broken.text(log),
                       tensor.empty() ? "" : fmt::format(" ({})", shortened_name(printable(tensor), 40)),
                       broken.count == 1 ? "holds" : "hold", broken.count == 1 ? "it" : "them");
}

/// What no loss scale mends, or none may mend, in sentences that others follow. Empty if there is nothing.
std::string about_lost(const GradientLog& log) {
    return about_nan_loss(log) + about_broken(log) + about_nothing_finite(log);
}

bool has_range_of_fp32(const FormatSpec& f) { return f.exponent_bits >= format("fp32").exponent_bits; }

/// log2 of the scale to start with, if one will do. Of a log that has the largest gradients alone the scale is as large
/// as they allow; or 1 in a format with the range of FP32, in which nothing becomes zero that FP32 would hold.
std::optional<int> start_of(const LossScaleFindings& f, const LossScaleOptions& options) {
    const Recommendation& r = f.recommendation;
    if (r.known == Known::unknown || r.highest_safe < 0) return std::nullopt;
    if (f.log.measured_steps() > 0) return r.log2_scale;
    if (has_range_of_fp32(options.format)) return 0;
    return std::clamp(r.highest_safe - options.recommendation.margin, 0, largest_log2_scale);
}

/// The steps that overflowed, by the record, under the scale to start with or a smaller one, though no recorded
/// magnitude would; in a sentence that follows others. Empty if there are none.
std::string about_unexplained(const LossScaleFindings& f, const LossScaleOptions& options) {
    const std::optional<int> log2_scale = start_of(f, options);
    if (!log2_scale) return "";
    double least = HUGE_VAL, most = 0;
    const SomeSteps unexplained = steps_that(f.log, [&](const GradientStep& step) { // about_broken() tells of the rest
        if (step.overflow_scale <= 1 || step.overflow_scale > std::ldexp(1.0, *log2_scale)) return false;
        least = std::min(least, step.overflow_scale);
        most = std::max(most, step.overflow_scale);
        return true;
    });
    if (unexplained.count == 0) return "";
    const bool one = unexplained.count == 1;
    return fmt::format(" But {}, overflowed under {:g}{} already, with gradients of which the record does not tell how "
                       "large they are: {} skipped at this start, too. A start below {:g} may keep {}, unless {} NaN.",
                       unexplained.text(f.log), least, most > least ? fmt::format(" to {:g}", most) : "",
                       one ? "it is" : "they are", least, one ? "it" : "them", one ? "it holds" : "they hold");
}

/// Which scale to start with, or why there is none.
std::string about_start(const LossScaleFindings& f, const LossScaleOptions& options) {
    const Recommendation& r = f.recommendation;
    const bool measured = f.log.measured_steps() > 0;
    const std::string format = options.format.name, limit = limit_percent(options.recommendation.limit);
    const std::string highest = power_of_two(r.highest_safe), lowest = power_of_two(r.lowest_enough);
    const std::string hidden =
        r.known == Known::exact ? "" : fmt::format("{}. {}", censoring_text(r.censoring), way_to_know(r));
    if (r.known == Known::unknown)
        return fmt::format("Whether these gradients need a loss scale in {} is unknown, as {}", format, hidden);
    if (const MagnitudeHistogram all = recorded_in(f.log); r.known == Known::bound && r.log2_scale)
        return fmt::format("Start at {}: nothing recorded overflows up to {}, and unscaled at least {} of the non-zero "
                           "gradients underflow. Whether less than {} do there is unknown, as {}",
                           power_of_two(*r.log2_scale), highest,
                           percent(all.classify(options.format, 0).underflow, all.nonzero()), limit, hidden);
    if (measured && !r.window)
        return fmt::format(
            "No scale holds these gradients in {}: above {} some overflow, below {} more than {} of the "
            "non-zero ones underflow. A format with more range (bf16) or unequal scales are the way out.",
            format, highest, lowest, limit);
    if (measured && r.log2_scale == 0)
        return fmt::format("These gradients need no loss scaling in {}: at scale 1 less than {} of the non-zero ones "
                           "underflow, and no{} overflows.{}",
                           format, limit, about_lost(f.log).empty() ? "ne" : " finite one",
                           records_activations(f.log) ? "" : fmt::format(" {}", without_activations));
    const std::optional<int> start = start_of(f, options);
    if (r.highest_safe < 0)
        return fmt::format("Gradients overflow in {} at scale 1 already: no loss scale helps.", format);
    if (!start)
        return fmt::format("No scale up to {}, whose inverse is the smallest that FP32 holds as a normal number, will "
                           "do in {}: below {} more than {} of the non-zero gradients underflow.",
                           power_of_two(largest_log2_scale), format, lowest, limit);
    const std::string safe = fmt::format("nothing recorded overflows up to {}", highest);
    if (measured)
        return fmt::format("Start at {}: {}, and from {} on less than {} of the non-zero gradients underflow.",
                           power_of_two(*start), safe, lowest, limit);
    if (has_range_of_fp32(options.format))
        return fmt::format("These gradients need no loss scaling in {}: it has the range of FP32, and {}.", format,
                           safe);
    return fmt::format("Start at {}: {}. How much underflows is not known: record gradients or their histograms.",
                       power_of_two(*start), safe);
}

/// What the scalers cost.
std::string about_scalers(const LossScaleFindings& f) {
    const auto by_skips = [](const ScalerReplay& a, const ScalerReplay& b) { return a.replay.skips < b.replay.skips; };
    const auto [least, most] = std::ranges::minmax_element(f.replays, by_skips);
    std::string text;
    if (most->replay.skips > least->replay.skips)
        text += fmt::format(" Of these scalers {} skips most ({}), {} least ({}).", most->name,
                            plural(count(most->replay.skips), "step"), least->name, least->replay.skips);
    if (!f.swept.empty()) text += fmt::format(" Least is lost by {}.", f.swept.front().name);
    return text;
}

std::string advice_of(const LossScaleFindings& f, const LossScaleOptions& options) {
    const bool none = !f.log.has_magnitudes() && f.recommendation.known == Known::exact;
    const MagnitudeHistogram all = recorded_in(f.log);
    if (none && all.count() > 0 && all.zero == all.count()) return "Advice: none, as all recorded gradients are zero.";
    if (none && all.count() > 0)
        return "Advice: none, as no recorded gradient is finite and not zero: look for NaN in the data or the network.";
    if (none)
        return "Advice: the log holds no magnitudes, so overflow is known only under the scales that were in force; "
               "log the largest gradient of each step (amax), or record histograms.";
    return "Advice: " + about_lost(f.log) + about_start(f, options) + about_unexplained(f, options) + about_scalers(f) +
           " Once settled, a dynamic scaler skips about one step in each growth interval: it tries the next scale.";
}

/// Whether the largest recorded gradient of the step is known to the bit, not only by the class of its magnitude.
bool knows_largest(const GradientStep& step) {
    if (step.magnitudes.rows.empty()) return true;
    MagnitudeHistogram largest;
    if (step.amax > 0) largest.add(unpack(step.amax));
    const auto top = [](const MagnitudeHistogram& h) {
        const auto& [exponent, row] = *h.rows.rbegin();
        const auto above = std::find_if(row.rbegin(), row.rend(), [](std::uint64_t n) { return n > 0; });
        return std::pair(exponent, row.rend() - above);
    };
    return !largest.rows.empty() && top(step.magnitudes) <= top(largest);
}

/// The largest gradient of each step, by which recommend() finds the scales at which any overflows in formats that end
/// where histograms do not tell numbers apart: nothing else about them depends on it.
FineHistogram largest_of(const GradientLog& log, const FormatSpec& format) {
    const FineNeeds needs = fine_needs(std::span(&format, 1), Rounding::nearest_even);
    FineHistogram fine;
    if (!needs.any()) return fine;
    for (const GradientStep& s : log.steps) {
        if (!knows_largest(s))
            throw FileError(log.name, fmt::format("step {} has a histogram, but not the largest gradient (amax), which "
                                                  "decides whether any overflows in {}, a format that ends within a "
                                                  "binade: log amax, record the gradients, or ask for fp16 or e4m3",
                                                  s.step, format.name));
        if (s.amax > 0) fine.add(unpack(s.amax), needs);
    }
    return fine;
}

} // namespace

LossScaleOptions standard_loss_scale_options() {
    LossScaleOptions options;
    for (const LossScalerRow& row : loss_scalers)
        if (row.options.scaling == LossScaling::dynamic) options.scalers.push_back(named_scaler(std::string(row.name)));
    return options;
}

LossScaleFindings loss_scale_findings(const std::filesystem::path& path, const LossScaleOptions& options,
                                      const Watch& watch) {
    return loss_scale_findings(read_gradient_log(path, options, watch), options, watch);
}

LossScaleFindings loss_scale_findings(GradientLog log, const LossScaleOptions& options, const Watch& watch) {
    const FloatEnvironment environment;
    check_counted(options.format, "format", true);
    if (options.scalers.empty() || log.steps.empty())
        throw std::invalid_argument("[loss scale] expected a scaler and a step at least");
    LossScaleFindings result{
        .log = std::move(log), .replays = {}, .swept = {}, .recommendation = {}, .advice = {}, .alarms = {}};
    const std::span<const GradientStep> steps = result.log.steps;
    if (steps.back().step - steps.front().step >= longest_run)
        throw FileError(result.log.name,
                        fmt::format("more than {} steps to replay ({} to {}): is one of the two wrong?", longest_run,
                                    steps.front().step, steps.back().step));
    const Progress progress = begin(watch, options.scalers.size());
    for (const auto& [name, scaler] : options.scalers) {
        result.replays.push_back({name, scaler, replay_scaler(scaler, steps, options.format)});
        if (progress) progress(1);
    }
    if (options.sweep) result.swept = sweep_scalers(steps, options.format, watch);
    MagnitudeHistogram all;
    Censoring censoring;
    for (const GradientStep& s : steps) {
        all.merge(s.magnitudes);
        censoring.merge(s.censoring);
        if (s.amax > 0) all.add(unpack(s.amax)); // magnitudes that were not measured must not overflow either
    }
    result.recommendation =
        recommend(all, largest_of(result.log, options.format), options.format, {}, options.recommendation, censoring);
    if (result.log.measured_steps() == 0 && result.log.has_magnitudes())
        result.recommendation.log2_scale = start_of(result, options); // underflow, which is not known, decides nothing
    result.advice = advice_of(result, options);
    std::vector<NamedAlarm> alarms;
    for (const ScalerReplay& scaler : result.replays)
        for (const Alarm& alarm : scaler.replay.alarms)
            alarms.push_back({scaler.name, alarm_text(alarm, scaler.options)});
    result.alarms = alarm_lines(alarms);
    return result;
}

std::string alarm_text(const Alarm& alarm, const LossScalerOptions& o) {
    switch (alarm.kind) {
    case AlarmKind::zero_scale:
        return fmt::format(
            "reaches scale 0 in step {}: gradients are 0 / 0 = NaN from then on, and every step is skipped; "
            "a minimum prevents it",
            alarm.step);
    case AlarmKind::below_one:
        return fmt::format(
            "falls below 1 in step {}: the gradients themselves leave the format, or are not finite at any "
            "scale",
            alarm.step);
    case AlarmKind::stuck_at_minimum:
        return fmt::format("overflows at its minimum of {} from step {} on", scale_text(o.min_scale), alarm.step);
    case AlarmKind::never_grows: return "never grows: no growth interval passes without an overflow";
    case AlarmKind::shorter_than_interval:
        return fmt::format("no growth within these steps, which are fewer than the growth interval of {}",
                           grouped(count(o.growth_interval)));
    case AlarmKind::aborts: return fmt::format("ends the run in step {}: an overflow at its minimum", alarm.step);
    case AlarmKind::poisons: return fmt::format("lets what overflows reach the weights, in step {} first", alarm.step);
    }
    return "";
}

std::vector<std::pair<std::string, std::int64_t>> overflow_causes(const Replay& replay) {
    std::map<std::string, std::int64_t> counts;
    for (const SkippedStep& s : replay.skipped) ++counts[s.tensor.empty() ? "not recorded" : s.tensor];
    std::vector<std::pair<std::string, std::int64_t>> causes(counts.begin(), counts.end());
    std::ranges::stable_sort(causes, [](const auto& a, const auto& b) { return a.second > b.second; });
    return causes;
}

} // namespace amp

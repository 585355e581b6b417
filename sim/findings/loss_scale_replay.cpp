#include <ampscope/sim/findings/loss_scale_replay.h>

#include <ampscope/formats/environment.h>
#include <ampscope/formats/names.h>
#include <ampscope/sim/analysis/gate.h>
#include <ampscope/sim/analysis/measure.h>
#include <ampscope/sim/base/number.h>
#include <ampscope/sim/io/step_log.h>

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

namespace amp {

namespace {

/// What scaler_options() can change, and where it is: a number or a count of steps.
struct ScalerKey {
    std::string_view name;
    double LossScalerOptions::*factor = nullptr;
    std::int64_t LossScalerOptions::*count = nullptr;
};
constexpr std::array scaler_keys = {ScalerKey{"init", &LossScalerOptions::init_scale},
                                    ScalerKey{"growth", &LossScalerOptions::growth_factor},
                                    ScalerKey{"backoff", &LossScalerOptions::backoff_factor},
                                    ScalerKey{"interval", nullptr, &LossScalerOptions::growth_interval},
                                    ScalerKey{"hysteresis", nullptr, &LossScalerOptions::hysteresis},
                                    ScalerKey{"min", &LossScalerOptions::min_scale},
                                    ScalerKey{"max", &LossScalerOptions::max_scale}};

constexpr std::array<std::string_view, 7> alarm_names = {"scale zero",
                                                         "scale below 1",
                                                         "stuck at the minimum",
                                                         "never grows",
                                                         "shorter than interval",
                                                         "aborts",
                                                         "overflow reaches the weights"};

/// Counts what underflows in a step that is taken.
void count_underflow(const GradientStep& step, double scale, const FormatSpec& format, Replay& replay) {
    const std::uint64_t nonzero = step.magnitudes.nonzero();
    if (nonzero == 0) return;
    const std::optional<int> exact = exact_log2(scale);
    // If the scale is not a power of two, the next higher one is used: no more underflows at it, so this is a bound.
    const int log2 = exact ? *exact : static_cast<int>(std::ceil(std::log2(scale)));
    replay.underflow += step.magnitudes.classify(format, log2).underflow;
    replay.nonzero += nonzero;
    ++replay.counted;
    if (!exact || step.censoring.hides()) replay.underflow_known = Known::bound;
}

/// Watches a replay for signs that the scaler misbehaves.
class AlarmWatch {
  public:
    AlarmWatch(const LossScalerOptions& options, Replay& replay) : options_(options), replay_(replay) {}

    void see(std::int64_t step, const LossScalerState& before, bool found_inf, const LossScalerUpdate& update) {
        if (update.verdict == ScalerVerdict::abort) raise(AlarmKind::aborts, step);
        if (found_inf && update.verdict == ScalerVerdict::step) raise(AlarmKind::poisons, step);
        if (options_.scaling != LossScaling::dynamic) return;
        const double after = update.state.scale;
        grew_ = grew_ || after > before.scale;
        if (after == 0) raise(AlarmKind::zero_scale, step);
        else if (after < 1) raise(AlarmKind::below_one, step);
        const bool stuck =
            update.verdict == ScalerVerdict::skip && before.scale == after && after == options_.min_scale;
        if (stuck) raise(AlarmKind::stuck_at_minimum, step);
    }

    void end(std::int64_t first) {
        if (options_.scaling != LossScaling::dynamic || grew_) return;
        const bool had_time = replay_.steps > options_.growth_interval;
        if (had_time) raise(AlarmKind::never_grows, first);
        else raise(AlarmKind::shorter_than_interval, first);
    }

  private:
    /// Records the first alarm of each kind.
    void raise(AlarmKind kind, std::int64_t step) {
        if (std::ranges::find(replay_.alarms, kind, &Alarm::kind) == replay_.alarms.end())
            replay_.alarms.push_back({kind, step});
    }

    const LossScalerOptions& options_;
    Replay& replay_;
    bool grew_ = false;
};

/// A scaler that goes over the steps until it aborts.
class Walk {
  public:
    Walk(const LossScalerOptions& options, const FormatSpec& format, std::size_t listed)
        : options_(options), format_(format), listed_(listed), state_(initial_state(options)) {}

    /// Takes step t with the gradients of a recorded step: its own or, in a gap, those of the step before the gap.
    void take(const GradientStep& recorded, std::int64_t t, bool gap) {
        if (aborted_) return;
        const double scale = state_.scale;
        StepOverflow overflow = overflows_at(recorded, scale, format_);
        if (gap) overflow.known = Known::unknown;
        const LossScalerUpdate update = update_scale(options_, state_, overflow.overflows);
        ++replay_.steps;
        ++replay_.known[static_cast<std::size_t>(overflow.known)];
        ++replay_.time[scale];
        if (scale != listed_scale_ && replay_.scales.size() < listed_) replay_.scales.push_back({t, scale});
        listed_scale_ = scale;
        if (update.verdict == ScalerVerdict::step) {
            if (!replay_.first_good) replay_.first_good = t;
            if (!gap) count_underflow(recorded, scale, format_, replay_);
        } else {
            if (replay_.skipped.size() < listed_)
                replay_.skipped.push_back({t, scale, recorded.largest, overflow.known});
            ++replay_.skips;
        }
        watch_.see(t, state_, overflow.overflows, update);
        state_ = update.state;
        aborted_ = update.verdict == ScalerVerdict::abort;
    }

    /// Takes the steps [t, end) of the gap after a recorded one. The scaler's next state depends only on its state
    /// there, so sooner or later it repeats itself. The cycle is found by Brent's method: the state is compared with an
    /// earlier one, which is replaced ever more rarely. Cycles with nothing to list are counted instead of walked
    /// through.
    void cross(const GradientStep& recorded, std::int64_t t, std::int64_t end) {
        if (aborted_) return;
        Mark mark = mark_at(t);
        for (std::int64_t reach = 1; t < end;) {
            take(recorded, t++, true);
            if (aborted_) return;
            const std::int64_t circle = t - mark.step;
            if (state_ == mark.state && replay_.scales.size() == mark.scales && replay_.skipped.size() == mark.skipped)
                t += repeat(mark, circle, (end - t) / circle);
            else if (circle == reach) {
                mark = mark_at(t);
                reach *= 2;
            }
        }
    }

    Replay end(std::int64_t first) {
        watch_.end(first);
        replay_.final_scale = state_.scale;
        return std::move(replay_);
    }

  private:
    struct Mark {
        std::int64_t step;
        LossScalerState state;
        std::int64_t skips;
        std::map<double, std::int64_t> time;
        std::size_t scales, skipped; ///< numbers of listed changes and skipped steps
    };

    [[nodiscard]] Mark mark_at(std::int64_t t) const {
        return {t, state_, replay_.skips, replay_.time, replay_.scales.size(), replay_.skipped.size()};
    }

    /// Counts the steps since the mark `times` more times. Returns their number.
    std::int64_t repeat(const Mark& mark, std::int64_t circle, std::int64_t times) {
        replay_.steps += times * circle;
        replay_.known[static_cast<std::size_t>(Known::unknown)] += times * circle;
        replay_.skips += times * (replay_.skips - mark.skips);
        for (auto& [scale, steps] : replay_.time) {
            const auto before = mark.time.find(scale);
            steps += times * (steps - (before == mark.time.end() ? 0 : before->second));
        }
        return times * circle;
    }

    const LossScalerOptions& options_;
    const FormatSpec& format_;
    std::size_t listed_;
    LossScalerState state_;
    Replay replay_{};
    AlarmWatch watch_{options_, replay_};
    double listed_scale_ = std::nan("");
    bool aborted_ = false;
};

template <class T>
T whole(std::string_view key, std::string_view text) {
    if (const std::optional<T> value = number_of<T>(text)) return *value;
    throw std::invalid_argument(fmt::format("loss scaler: {}={}: expected a whole number", key, text));
}

} // namespace

std::string_view name_of(AlarmKind kind) { return alarm_names[static_cast<std::size_t>(kind)]; }

StepOverflow overflows_at(const GradientStep& step, double scale, const FormatSpec& format) {
    const FloatEnvironment environment;
    if (step.hidden) return {!(scale > 0), Known::unknown};
    if (!(scale > 0) || scale >= step.overflow_scale) return {true, Known::exact}; // scale 0: 0 * (1 / 0) is NaN
    if (!std::isfinite(quantize(format, scale * step.amax))) return {true, Known::exact};
    if (scale <= step.clean_scale) return {false, Known::exact};
    return {false, std::isfinite(step.overflow_scale) ? Known::unknown : Known::bound};
}

Replay replay_scaler(const LossScalerOptions& options, std::span<const GradientStep> steps, const FormatSpec& format,
                     std::size_t listed) {
    const FloatEnvironment environment;
    if (steps.empty()) throw std::invalid_argument("no steps to replay");
    if (steps.back().step - steps.front().step >= longest_run)
        throw std::invalid_argument(fmt::format("more than {} steps to replay", longest_run));
    Walk walk(options, format, listed);
    for (std::size_t i = 0; i < steps.size(); ++i) {
        const std::int64_t step = steps[i].step, next = i + 1 < steps.size() ? steps[i + 1].step : step + 1;
        walk.take(steps[i], step, false);
        walk.cross(steps[i], step + 1, next);
    }
    return walk.end(steps.front().step);
}

std::vector<ScalerReplay> sweep_scalers(std::span<const GradientStep> steps, const FormatSpec& format,
                                        const Watch& watch) {
    std::vector<std::string> names;
    for (int log2 = 0; log2 <= 32; ++log2) names.push_back(fmt::format("constant,init=2^{}", log2));
    for (int log2 = 0; log2 <= 32; log2 += 4)
        for (const int interval : {50, 100, 200, 500, 1000, 2000})
            for (const char* backoff : {"0.5", "0.25"})
                names.push_back(fmt::format("torch,init=2^{},interval={},backoff={}", log2, interval, backoff));
    std::vector<ScalerReplay> swept;
    const Progress progress = begin(watch, names.size());
    for (const std::string& name : names) {
        const LossScalerOptions options = scaler_options(name);
        swept.push_back({name, options, replay_scaler(options, steps, format, 0)});
        if (progress) progress(1);
    }
    std::ranges::stable_sort(swept, [](const ScalerReplay& a, const ScalerReplay& b) {
        return a.lost() != b.lost() ? a.lost() < b.lost() : a.replay.final_scale > b.replay.final_scale;
    });
    const auto alike = [](const ScalerReplay& a, const ScalerReplay& b) {
        return a.lost() == b.lost() && a.replay.final_scale == b.replay.final_scale;
    };
    swept.erase(std::unique(swept.begin(), swept.end(), alike), swept.end());
    return swept;
}

std::string scaler_option_names() { return names_of_rows(scaler_keys); }

LossScalerOptions scaler_options(std::string_view text) {
    const FloatEnvironment environment;
    std::size_t end = std::min(text.find(','), text.size());
    LossScalerOptions o = loss_scaler(text.substr(0, end)).options;
    std::vector<std::string_view> given;
    while (end < text.size()) {
        text.remove_prefix(end + 1);
        end = std::min(text.find(','), text.size());
        const std::string_view item = text.substr(0, end), key = item.substr(0, item.find('='));
        const std::string_view value = item.size() > key.size() ? item.substr(key.size() + 1) : std::string_view();
        if (std::ranges::count(given, key) > 0)
            throw std::invalid_argument(fmt::format("loss scaler: {} is given twice", key));
        given.push_back(key);
        if (o.scaling == LossScaling::off || (o.scaling == LossScaling::constant && key != "init"))
            throw std::invalid_argument(fmt::format("loss scaler: {} changes nothing here", key));
        const ScalerKey& row = find_row("key of a loss scaler", scaler_keys, key);
        if (key == "backoff" && o.backoff == BackoffRule::divide)
            throw std::invalid_argument("loss scaler: this one backs off by growth: backoff changes nothing");
        if (row.count != nullptr) o.*row.count = whole<std::int64_t>(key, value);
        else o.*row.factor = key == "min" && value == "0" ? 0 : parse_scale(value);
    }
    check(o);
    return o;
}

} // namespace amp

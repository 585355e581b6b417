#include <ampscope/sim/analysis/loss_scale_replay.h>

#include <ampscope/formats/environment.h>
#include <ampscope/sim/analysis/gate.h>
#include <ampscope/sim/analysis/measure.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fmt/format.h>

namespace amp {

namespace {

constexpr std::array<std::string_view, 3> known_names = {"exact", "bound", "unknown"};
constexpr std::array<std::string_view, 7> alarm_names = {"scale zero",
                                                         "scale below 1",
                                                         "stuck at the minimum",
                                                         "never grows",
                                                         "shorter than interval",
                                                         "aborts",
                                                         "overflow reaches the weights"};

/// Adds what underflows in a step that is taken.
void count_underflow(const GradientStep& step, double scale, const FormatSpec& format, Replay& replay) {
    const std::uint64_t nonzero = step.magnitudes.nonzero();
    if (nonzero == 0) return;
    const std::optional<int> exact = exact_log2(scale);
    // Of a scale between two powers of two the lower one's underflow is as much or more.
    const int log2 = exact ? *exact : static_cast<int>(std::floor(std::log2(scale)));
    replay.underflow += step.magnitudes.classify(format, log2).underflow;
    replay.nonzero += nonzero;
    ++replay.counted;
    if (!exact || step.flushed) replay.underflow_known = Known::bound;
}

/// What a run of the machine shows that is wrong with it.
class Watch {
  public:
    Watch(const LossScalerOptions& options, Replay& replay) : options_(options), replay_(replay) {}

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
    /// The first of each kind.
    void raise(AlarmKind kind, std::int64_t step) {
        if (std::ranges::find(replay_.alarms, kind, &Alarm::kind) == replay_.alarms.end())
            replay_.alarms.push_back({kind, step});
    }

    const LossScalerOptions& options_;
    Replay& replay_;
    bool grew_ = false;
};

template <class T>
T whole(std::string_view key, std::string_view text) {
    T value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc() && end == text.data() + text.size()) return value;
    throw std::invalid_argument(fmt::format("loss scaler: {}={}: expected a whole number", key, text));
}

} // namespace

std::string_view name_of(Known known) { return known_names[static_cast<std::size_t>(known)]; }
std::string_view name_of(AlarmKind kind) { return alarm_names[static_cast<std::size_t>(kind)]; }

StepOverflow overflows_at(const GradientStep& step, double scale, const FormatSpec& format) {
    const FloatEnvironment environment;
    if (step.hidden) return {!(scale > 0), Known::unknown};
    if (!(scale > 0) || scale >= step.overflow_scale) return {true, Known::exact}; // 0 * (1 / 0) is NaN
    if (!std::isfinite(quantize(format, scale * step.amax))) return {true, Known::exact};
    if (scale <= step.clean_scale) return {false, Known::exact};
    return {false, std::isfinite(step.overflow_scale) ? Known::unknown : Known::bound};
}

Replay replay_scaler(const LossScalerOptions& options, std::span<const GradientStep> steps, const FormatSpec& format,
                     std::size_t listed) {
    const FloatEnvironment environment;
    LossScalerState state = initial_state(options);
    if (steps.empty()) throw std::invalid_argument("no steps to replay");
    if (steps.back().step - steps.front().step >= most_replayed_steps)
        throw std::invalid_argument(fmt::format("more than {} steps to replay", most_replayed_steps));
    Replay replay;
    Watch watch(options, replay);
    bool aborted = false;
    double listed_scale = std::nan("");
    for (std::size_t i = 0; i < steps.size() && !aborted; ++i) {
        const GradientStep& recorded = steps[i];
        const std::int64_t next = i + 1 < steps.size() ? steps[i + 1].step : recorded.step + 1;
        for (std::int64_t t = recorded.step; t < next && !aborted; ++t) {
            const bool gap = t != recorded.step;
            const double scale = state.scale;
            StepOverflow overflow = overflows_at(recorded, scale, format);
            if (gap) overflow.known = Known::unknown;
            const LossScalerUpdate update = update_scale(options, state, overflow.overflows);
            ++replay.steps;
            ++replay.known[static_cast<std::size_t>(overflow.known)];
            ++replay.time[scale];
            if (scale != listed_scale && replay.scales.size() < listed) replay.scales.push_back({t, scale});
            listed_scale = scale;
            if (update.verdict == ScalerVerdict::step) {
                if (!replay.first_good) replay.first_good = t;
                if (!gap) count_underflow(recorded, scale, format, replay);
            } else {
                if (replay.skipped.size() < listed)
                    replay.skipped.push_back({t, scale, recorded.largest, overflow.known});
                ++replay.skips;
            }
            watch.see(t, state, overflow.overflows, update);
            state = update.state;
            aborted = update.verdict == ScalerVerdict::abort;
        }
    }
    watch.end(steps.front().step);
    replay.final_scale = state.scale;
    return replay;
}

std::vector<SweptScaler> sweep_scalers(std::span<const GradientStep> steps, const FormatSpec& format) {
    std::vector<std::string> names;
    for (int log2 = 0; log2 <= 32; ++log2) names.push_back(fmt::format("constant,init=2^{}", log2));
    for (int log2 = 0; log2 <= 32; log2 += 4)
        for (const int interval : {50, 100, 200, 500, 1000, 2000})
            for (const char* backoff : {"0.5", "0.25"})
                names.push_back(fmt::format("torch,init=2^{},interval={},backoff={}", log2, interval, backoff));
    std::vector<SweptScaler> swept;
    for (const std::string& name : names) {
        const LossScalerOptions options = scaler_options(name);
        swept.push_back({name, options, replay_scaler(options, steps, format, 0)});
    }
    std::ranges::stable_sort(swept, [](const SweptScaler& a, const SweptScaler& b) {
        return a.lost() != b.lost() ? a.lost() < b.lost() : a.replay.final_scale > b.replay.final_scale;
    });
    const auto alike = [](const SweptScaler& a, const SweptScaler& b) {
        return a.lost() == b.lost() && a.replay.final_scale == b.replay.final_scale;
    };
    swept.erase(std::unique(swept.begin(), swept.end(), alike), swept.end());
    return swept;
}

LossScalerOptions scaler_options(std::string_view text) {
    const FloatEnvironment environment;
    std::size_t end = std::min(text.find(','), text.size());
    LossScalerOptions o = loss_scaler(text.substr(0, end)).options;
    struct Number {
        std::string_view key;
        double& value;
    };
    const Number numbers[] = {{"init", o.init_scale},
                              {"growth", o.growth_factor},
                              {"backoff", o.backoff_factor},
                              {"min", o.min_scale},
                              {"max", o.max_scale}};
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
        const auto* const number = std::ranges::find(numbers, key, &Number::key);
        if (key == "backoff" && o.backoff == BackoffRule::divide)
            throw std::invalid_argument("loss scaler: this one backs off by growth: backoff changes nothing");
        if (number != std::end(numbers)) number->value = key == "min" && value == "0" ? 0 : parse_scale(value);
        else if (key == "interval") o.growth_interval = whole<std::int64_t>(key, value);
        else if (key == "hysteresis") o.hysteresis = whole<std::int64_t>(key, value);
        else
            throw std::invalid_argument(
                fmt::format("loss scaler: unknown key '{}'; known: init, growth, backoff, interval, "
                            "hysteresis, min, max",
                            key));
    }
    check(o);
    return o;
}

} // namespace amp

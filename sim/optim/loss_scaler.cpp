#include <ampscope/sim/optim/loss_scaler.h>

#include <ampscope/formats/environment.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace amp {

namespace {

/// x rounded to the type of the scale.
double stored(const LossScalerOptions& o, double x) {
    switch (o.arithmetic) {
    case ScaleArithmetic::fp64: return x;
    case ScaleArithmetic::fp32:
    case ScaleArithmetic::fp32_wide: return static_cast<float>(x);
    }
    return x;
}

/// A factor in the type in which the arithmetic uses it.
double operand(const LossScalerOptions& o, double factor) {
    switch (o.arithmetic) {
    case ScaleArithmetic::fp32: return static_cast<float>(factor);
    case ScaleArithmetic::fp64:
    case ScaleArithmetic::fp32_wide: return factor;
    }
    return factor;
}

double lowered(const LossScalerOptions& o, double scale) {
    switch (o.backoff) {
    case BackoffRule::multiply: return scale * operand(o, o.backoff_factor);
    case BackoffRule::divide: return scale / operand(o, o.growth_factor);
    }
    return scale;
}

bool refills(const LossScalerOptions& o, bool grows) {
    switch (o.hysteresis_refill) {
    case HysteresisRefill::at_growth: return grows;
    case HysteresisRefill::each_clean_step: return true;
    }
    return false;
}

// `stored` is the only rounding that matters, in FP32 too: the FP64 product of two FP32 values is exact, and their FP64
// quotient rounds to the same FP32 value as the exact one (53 digits are more than 2 * 24 + 1).
double grown(const LossScalerOptions& o, double scale) {
    const double product = stored(o, scale * operand(o, o.growth_factor));
    if (o.guard_growth && !std::isfinite(product)) return scale;
    return std::min(product, o.max_scale);
}

double backed_off(const LossScalerOptions& o, double scale) {
    return std::max(stored(o, lowered(o, scale)), stored(o, o.min_scale));
}

/// Counts a clean step; true if the scale should grow.
bool count_clean_step(const LossScalerOptions& o, std::int64_t& tracker) {
    const std::int64_t before = tracker++, interval = o.growth_interval;
    switch (o.growth_test) {
    case GrowthTest::equal:
        if (tracker != interval) return false;
        tracker = 0;
        return true;
    case GrowthTest::at_least:
        if (tracker < interval) return false;
        tracker = 0;
        return true;
    case GrowthTest::wrapping: tracker %= interval; return before + 1 == interval;
    case GrowthTest::since_overflow: return tracker % interval == 0;
    case GrowthTest::since_overflow_late: return before > 0 && before % interval == 0;
    }
    return false;
}

LossScalerUpdate after_overflow(const LossScalerOptions& o, LossScalerState state) {
    LossScalerState next = state;
    bool back_off = true;
    if (o.hysteresis > 0) {
        back_off = --next.hysteresis_tracker <= 0;
        if (o.hysteresis_stays_positive) next.hysteresis_tracker = std::max<std::int64_t>(next.hysteresis_tracker, 1);
    }
    if (back_off && o.abort_at_min_scale && state.scale == o.min_scale)
        return {.state = state, .verdict = ScalerVerdict::abort, .unscale_by = state.scale};
    if (back_off) next.scale = backed_off(o, state.scale);
    next.growth_tracker = 0;
    return {.state = next, .verdict = ScalerVerdict::skip, .unscale_by = state.scale};
}

LossScalerUpdate after_clean_step(const LossScalerOptions& o, LossScalerState state) {
    LossScalerUpdate update{.state = state, .unscale_by = state.scale};
    const bool grow = count_clean_step(o, update.state.growth_tracker);
    if (grow) update.state.scale = grown(o, state.scale);
    if (refills(o, grow)) update.state.hysteresis_tracker = o.hysteresis;
    return update;
}

// Not inlined where a FloatEnvironment is set (environment.h).
[[gnu::noinline]] LossScalerUpdate next(const LossScalerOptions& o, const LossScalerState& state, bool found_inf) {
    LossScalerUpdate update = found_inf ? after_overflow(o, state) : after_clean_step(o, state);
    if (o.unscale_by_updated_scale) update.unscale_by = update.state.scale;
    return update;
}

[[gnu::noinline]] float unscaled(const LossScalerOptions& o, double scale, float gradient) {
    switch (o.unscale) {
    case UnscaleRule::divide: return gradient / static_cast<float>(scale);
    case UnscaleRule::reciprocal: return gradient * static_cast<float>(1.0 / scale);
    }
    return gradient;
}

[[noreturn]] void refuse(const std::string& what) { throw std::invalid_argument("[loss_scaler] " + what); }

std::int64_t tracker(const nlohmann::json& json, const char* key) {
    const auto found = json.find(key);
    if (found == json.end() || !found->is_number_integer() || std::fabs(found->get<double>()) > 0x1p31)
        refuse(fmt::format("state: expected {} to be a number of steps, got {}", key, json.dump()));
    return found->get<std::int64_t>();
}

} // namespace

void check(const LossScalerOptions& options) {
    const auto require = [](bool holds, const char* name, const char* range, double value) {
        if (!holds) refuse(fmt::format("{}: expected {}, got {}", name, range, value));
    };
    const double init = stored(options, options.init_scale);
    require(std::isfinite(init) && init > 0, "init_scale", "a positive number within the scale's type",
            options.init_scale);
    require(std::isfinite(options.growth_factor) && options.growth_factor > 1, "growth_factor",
            "a finite number above 1", options.growth_factor);
    require(options.backoff_factor > 0 && options.backoff_factor < 1, "backoff_factor", "a number between 0 and 1",
            options.backoff_factor);
    require(options.growth_interval >= 1, "growth_interval", "1 or more", static_cast<double>(options.growth_interval));
    require(options.hysteresis >= 0, "hysteresis", "0 or more", static_cast<double>(options.hysteresis));
    require(std::isfinite(options.min_scale) && options.min_scale >= 0, "min_scale", "a finite number, 0 or more",
            options.min_scale);
    require(options.max_scale > 0 && options.max_scale >= options.min_scale, "max_scale",
            "a positive number of at least min_scale", options.max_scale);
}

LossScalerState initial_state(const LossScalerOptions& options) {
    check(options);
    return {.scale = stored(options, options.init_scale), .hysteresis_tracker = options.hysteresis};
}

LossScalerUpdate update_scale(const LossScalerOptions& options, const LossScalerState& state, bool found_inf) {
    const FloatEnvironment environment;
    switch (options.scaling) {
    case LossScaling::dynamic: return next(options, state, found_inf);
    case LossScaling::constant:
        return {.state = state,
                .verdict = found_inf ? ScalerVerdict::skip : ScalerVerdict::step,
                .unscale_by = state.scale};
    case LossScaling::off: break;
    }
    return {.state = state, .unscale_by = state.scale};
}

float unscale(const LossScalerOptions& options, double scale, float gradient) {
    const FloatEnvironment environment;
    return unscaled(options, scale, gradient);
}

void to_json(nlohmann::json& json, const LossScalerState& state) {
    json = {{"scale", state.scale},
            {"growth_tracker", state.growth_tracker},
            {"hysteresis_tracker", state.hysteresis_tracker}};
    if (std::isinf(state.scale)) json["scale"] = nullptr;
}

void from_json(const nlohmann::json& json, LossScalerState& state) {
    if (!json.is_object()) refuse("state: expected a JSON object, got " + json.dump());
    const auto scale = json.find("scale");
    if (scale == json.end() || !(scale->is_null() || (scale->is_number() && scale->get<double>() >= 0)))
        refuse("state: expected a scale that is a number, 0 or more, or null for infinity, got " + json.dump());
    state.scale = scale->is_null() ? std::numeric_limits<double>::infinity() : scale->get<double>();
    state.growth_tracker = tracker(json, "growth_tracker");
    state.hysteresis_tracker = tracker(json, "hysteresis_tracker");
}

} // namespace amp

#include <ampscope/sim/findings/adam_effects.h>

#include <ampscope/formats/batch.h>
#include <ampscope/formats/codec.h>
#include <ampscope/formats/environment.h>
#include <ampscope/sim/backend/kernels/update.h>

#include <algorithm>
#include <climits>
#include <cmath>

namespace amp {

namespace {

std::size_t elements(const AdamHistory& history) {
    return history.gradients.empty() ? history.m.size() : history.gradients.front().size();
}

/// Which elements had a gradient in the examined step: those where this is not zero.
std::vector<float> last_gradient(const AdamHistory& history) {
    if (!history.gradients.empty()) return history.gradients.back();
    std::vector<float> gradient = history.m;
    for (std::size_t i = 0; i < gradient.size(); ++i)
        if (gradient[i] == 0) gradient[i] = history.v[i];
    return gradient;
}

/// The optimizer state of one parameter.
struct State {
    std::vector<float> weight, m, v;
    FormatSpec weight_format, state_format;
    ScaledState scaled; ///< how m and v are kept
    bool contract;

    State(const AdamHistory& history, const AdamState& s, bool contracts)
        : weight(elements(history)), m(history.m), v(history.v), weight_format(fp32_format()), state_format(s.format),
          contract(contracts) {
        const auto count = static_cast<std::int64_t>(weight.size());
        scaled = {.m = held_in(s.m, count), .v = held_in(s.v, count)};
        m.resize(weight.size());
        v.resize(weight.size());
        const bool follows = history.gradients.empty(); // m and v are those after the step, which is made before scales
        if (!follows || !scaled.m) store(m, scaled.m);
        if (!follows || !scaled.v) store(v, scaled.v);
    }
    /// Rounds m, or v, as it is kept.
    void store(std::span<float> values, const std::optional<ScaledFormat>& under) const {
        if (under) keep_scaled(*under, values, contract);
        else quantize(state_format, values, values);
    }
    /// `keeps`: scales are applied after the step.
    void step(const OptimizerOptions& options, std::int64_t t, std::span<const float> gradient,
              bool has_moments = false, bool keeps = true) {
        update(options, {.t = t, .learning_rate = options.learning_rate, .has_moments = has_moments},
               {.weight_format = weight_format,
                .m_format = state_format,
                .v_format = state_format,
                .weight = weight,
                .gradient = gradient,
                .m = m,
                .v = v,
                .compensation = {},
                .scaled = keeps ? scaled : ScaledState{}});
    }
};

/// The settings of the steps with gradient i.
const OptimizerOptions& settings_of(const AdamQuestion& question, const AdamHistory& history, std::size_t i) {
    return history.settings.empty() ? question.options : history.settings[i];
}

/// Those of the examined step.
const OptimizerOptions& last_settings(const AdamQuestion& question, const AdamHistory& history) {
    return history.settings.empty() ? question.options : history.settings.back();
}

/// The state before the examined step, and the number of that step.
std::pair<State, std::int64_t> state_before(const AdamQuestion& question, const AdamHistory& history,
                                            const AdamState& s) {
    State state(history, s, question.options.contract);
    std::int64_t t = history.first;
    for (std::size_t i = 0; i < history.gradients.size(); ++i) {
        const bool last = i + 1 == history.gradients.size();
        for (std::int64_t k = history.repeats[i]; k > (last ? 1 : 0); --k)
            state.step(settings_of(question, history, i), t++, history.gradients[i]);
    }
    return {std::move(state), t};
}

/// Makes the last step from a state, at one eps. The weights begin at zero, so they end as the step itself.
EpsEffects last_step(const OptimizerOptions& options, State& state, std::int64_t t, std::span<const float> gradient,
                     bool has_moments) {
    std::ranges::fill(state.weight, 0.0F);
    state.step(options, t, gradient, has_moments, false);
    const float eps = quantize(state.state_format, options.eps);
    const double correction = kernels::factors_of(options, t).correction2;
    EpsEffects e;
    for (std::size_t i = 0; i < gradient.size(); ++i) {
        e.nonfinite += !std::isfinite(state.weight[i]);
        if (gradient[i] == 0) continue;
        const double root = std::sqrt(state.v[i] / correction);
        e.dominated += root < eps;
        e.ratio.add(eps == 0 ? (root == 0 ? std::nan("") : HUGE_VAL) : root / eps);
    }
    return e;
}

/// Rounds decayed values under the scales of those before: the largest of each part that shares a scale stays, as its
/// own gradients keep it up in training. That one decays with its scale, if at all, and is 0 in the result.
void decay_under_scales(const State& state, std::span<const float> before, std::span<float> decayed) {
    const ScaledFormat& f = *state.scaled.v;
    const std::size_t part = f.block == 0 ? before.size() : static_cast<std::size_t>(f.block);
    std::vector<std::size_t> largest;
    for (std::size_t begin = 0; begin < before.size(); begin += part) {
        const auto first = before.begin() + static_cast<std::ptrdiff_t>(begin);
        const auto last = first + static_cast<std::ptrdiff_t>(std::min(part, before.size() - begin));
        largest.push_back(static_cast<std::size_t>(std::max_element(first, last) - before.begin()));
        decayed[largest.back()] = before[largest.back()];
    }
    state.store(decayed, f);
    for (const std::size_t i : largest) decayed[i] = 0;
}

/// Counts what the state holds after the step.
void count_stored(State& state, std::span<const float> gradient, double beta2, StateEffects& result) {
    if (state.scaled.m) result.held = state.m.size();
    if (state.scaled.m) state.store(state.m, state.scaled.m);
    if (state.scaled.v) state.store(state.v, state.scaled.v);
    std::vector<float> decayed = state.v;
    for (float& v : decayed) v *= static_cast<float>(beta2);
    if (state.scaled.v) decay_under_scales(state, state.v, decayed);
    else state.store(decayed, {});
    for (std::size_t i = 0; i < gradient.size(); ++i) {
        const float v = state.v[i];
        result.m_underflow += state.m[i] == 0 && gradient[i] != 0;
        result.v_underflow += v == 0 && gradient[i] != 0;
        result.v_stuck += v != 0 && std::isfinite(v) && decayed[i] == v;
    }
}

/// The lengths of steps by those of others that are numbers, where one of the two moves the weight. Also without a
/// gradient: m / eps is the longest step, where v was rounded to 0.
BinadeCounts stretch_of(std::span<const float> steps, std::span<const float> others) {
    BinadeCounts counts;
    for (std::size_t i = 0; i < steps.size(); ++i) {
        const double step = std::abs(steps[i]), other = std::abs(others[i]);
        if (!std::isfinite(other) || (step == 0 && other == 0)) continue;
        counts.add(step == other ? 1 : step / other);
    }
    return counts;
}

/// `usual`: the steps at the usual eps with the question's first state; it is set if it is empty.
StateEffects effects_of(const AdamQuestion& question, const AdamHistory& history, const AdamState& s,
                        std::vector<float>& usual, AdamEffects& all) {
    const auto [before, t] = state_before(question, history, s);
    const std::vector<float> gradient = last_gradient(history);
    OptimizerOptions options = last_settings(question, history);
    options.weight_decay = 0; // only the step counts
    StateEffects result;
    State state = before;
    for (std::size_t e = 0; e < question.eps.size(); ++e) {
        state = before;
        options.eps = question.eps[e];
        result.eps.push_back(last_step(options, state, t, gradient, history.gradients.empty()));
        if (e != question.usual_eps) continue;
        if (usual.empty()) usual = state.weight;
        if (history.gradients.empty() && s.m) continue; // nothing is known of the state that scales left before
        result.stretch = stretch_of(state.weight, usual);
    }
    const std::vector<float> v = state.v; // before it is stored
    count_stored(state, gradient, options.beta2, result);
    if (s != AdamState(fp32_format())) return result;
    const double correction = kernels::factors_of(options, t).correction2;
    for (std::size_t i = 0; i < gradient.size(); ++i) {
        if (gradient[i] == 0) continue;
        const double root = std::sqrt(v[i] / correction);
        all.root.add(root);
        all.rate.add(options.learning_rate / (root + question.eps[question.usual_eps]));
    }
    return result;
}

/// Counts the weights with a gradient that the step does not change, in one format of the weights.
std::uint64_t lost_updates(const AdamQuestion& question, const AdamHistory& history, const FormatSpec& f) {
    auto [state, t] = state_before(question, history, fp32_format());
    OptimizerOptions options = last_settings(question, history);
    options.eps = question.eps[question.usual_eps];
    state.weight_format = f;
    quantize(f, history.weight, state.weight);
    const std::vector<float> before = state.weight;
    const std::vector<float> gradient = last_gradient(history);
    state.step(options, t, gradient, history.gradients.empty());
    std::uint64_t lost = 0;
    for (std::size_t i = 0; i < before.size(); ++i) lost += gradient[i] != 0 && state.weight[i] == before[i];
    return lost;
}

/// Whether the weights are multiplied by 1 - learning rate * weight decay, and rounded, before the step.
bool decays_apart(const OptimizerOptions& o) {
    return o.weight_decay != 0 && facts_of(o.kind).decouples && facts_of(o.order).rounds_each;
}

/// Counts the weights that are not zero and that weight decay does not change, in one format: a step without moments
/// makes nothing but the decay.
std::uint64_t undecayed(OptimizerOptions options, std::vector<float> weight, const FormatSpec& f) {
    options.eps = 1;
    quantize(f, weight, weight);
    const std::vector<float> before = weight;
    std::vector<float> m(weight.size()), v(weight.size());
    update(options, {.t = 1, .learning_rate = options.learning_rate, .has_moments = true},
           {.weight_format = f,
            .m_format = fp32_format(),
            .v_format = fp32_format(),
            .weight = weight,
            .gradient = {},
            .m = m,
            .v = v,
            .compensation = {}});
    std::uint64_t same = 0;
    for (std::size_t i = 0; i < before.size(); ++i) same += before[i] != 0 && weight[i] == before[i];
    return same;
}

} // namespace

AdamState adam_state(std::string_view text) {
    AdamState state;
    state.m = scaled_format(text, true);
    state.v = scaled_format(text, false);
    if (!state.m) state.format = format(text);
    if (state.format.is_scale()) throw std::invalid_argument(std::string(text) + ": holds scales, not tensors");
    return state;
}

double AdamQuestion::stored_eps(std::size_t s, std::size_t e) const { return quantize(states[s].format, eps[e]); }

bool AdamQuestion::has_scales() const {
    return std::ranges::any_of(states, [](const AdamState& s) { return s.m.has_value(); });
}

void BinadeCounts::add(double x) {
    if (x == 0) ++zero;
    else if (!std::isfinite(x)) ++infinite;
    else add(std::ilogb(x), 1);
}

void BinadeCounts::add(int bin, std::uint64_t n) {
    auto at = std::ranges::lower_bound(bins, bin, {}, &std::pair<int, std::uint64_t>::first);
    if (at == bins.end() || at->first != bin) at = bins.emplace(at, bin, 0);
    at->second += n;
}

void BinadeCounts::merge(const BinadeCounts& other) {
    if (bins.empty()) bins = other.bins; // a copy takes no more memory than it needs
    else
        for (const auto& [bin, n] : other.bins) add(bin, n);
    zero += other.zero;
    infinite += other.infinite;
}

std::uint64_t BinadeCounts::count() const {
    std::uint64_t sum = zero + infinite;
    for (const auto& [bin, n] : bins) sum += n;
    return sum;
}

int BinadeCounts::median() const {
    const std::uint64_t half = (count() + 1) / 2;
    std::uint64_t seen = zero;
    if (seen >= half) return INT_MIN;
    for (const auto& [bin, n] : bins)
        if ((seen += n) >= half) return bin;
    return INT_MAX;
}

void EpsEffects::merge(const EpsEffects& other) {
    dominated += other.dominated;
    nonfinite += other.nonfinite;
    ratio.merge(other.ratio);
}

std::uint64_t StateEffects::longer() const {
    std::uint64_t n = stretch.infinite;
    for (const auto& [log2, count] : stretch.bins) n += log2 >= 1 ? count : 0;
    return n;
}

std::uint64_t StateEffects::shorter() const {
    std::uint64_t n = stretch.zero;
    for (const auto& [log2, count] : stretch.bins) n += log2 < -1 ? count : 0;
    return n;
}

void StateEffects::merge(const StateEffects& other) {
    held += other.held;
    m_underflow += other.m_underflow;
    stretch.merge(other.stretch);
    v_underflow += other.v_underflow;
    v_stuck += other.v_stuck;
    eps.resize(std::max(eps.size(), other.eps.size()));
    for (std::size_t i = 0; i < other.eps.size(); ++i) eps[i].merge(other.eps[i]);
}

void AdamEffects::merge(const AdamEffects& other) {
    elements += other.elements;
    nonzero += other.nonzero;
    if (!least_log2 || (other.least_log2 && *other.least_log2 < *least_log2)) least_log2 = other.least_log2;
    root.merge(other.root);
    rate.merge(other.rate);
    states.resize(std::max(states.size(), other.states.size()));
    for (std::size_t i = 0; i < other.states.size(); ++i) states[i].merge(other.states[i]);
    updated += other.updated;
    lost.resize(std::max(lost.size(), other.lost.size()));
    for (std::size_t i = 0; i < other.lost.size(); ++i) lost[i] += other.lost[i];
    decaying += other.decaying;
    undecayed.resize(std::max(undecayed.size(), other.undecayed.size()));
    for (std::size_t i = 0; i < other.undecayed.size(); ++i) undecayed[i] += other.undecayed[i];
}

AdamEffects adam_effects(const AdamQuestion& question, const AdamHistory& history) {
    const FloatEnvironment environment;
    check(question.options);
    for (const OptimizerOptions& settings : history.settings) check(settings);
    AdamEffects result;
    if (elements(history) == 0 && history.gradients.empty()) return result;
    const std::vector<float> gradient = last_gradient(history);
    result.elements = gradient.size();
    for (const float g : gradient) {
        if (g == 0) continue;
        ++result.nonzero;
        if (std::isfinite(g)) result.least_log2 = std::min(result.least_log2.value_or(INT_MAX), std::ilogb(g));
    }
    std::vector<float> usual;
    for (const AdamState& s : question.states) result.states.push_back(effects_of(question, history, s, usual, result));
    if (history.weight.empty()) return result;
    result.updated = result.nonzero;
    for (const FormatSpec& f : question.weights) result.lost.push_back(lost_updates(question, history, f));
    const OptimizerOptions& last = last_settings(question, history);
    if (!decays_apart(last)) return result;
    result.decaying = static_cast<std::uint64_t>(std::ranges::count_if(history.weight, [](float w) { return w != 0; }));
    for (const FormatSpec& f : question.weights) result.undecayed.push_back(undecayed(last, history.weight, f));
    return result;
}

} // namespace amp

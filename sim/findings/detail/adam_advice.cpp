#include <ampscope/sim/findings/detail/adam_advice.h>

#include <ampscope/sim/base/tensor_names.h>
#include <ampscope/sim/base/text.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace amp::detail {

namespace {

constexpr double few = 0.01, many = 0.5; // shares of elements; the advice depends on them

double share(std::uint64_t part, std::uint64_t whole) {
    return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

/// The share of steps decided by an eps of the sweep, with FP32 state.
double decided_share(const AdamEffects& e, std::size_t eps) {
    return share(e.states.front().eps[eps].dominated, e.nonzero);
}

/// The largest eps of the sweep that decides few steps; none if all decide more.
std::optional<double> quiet_eps(const AdamFindings& f) {
    for (std::size_t i = 0; i < f.question.eps.size(); ++i)
        if (f.question.eps[i] > 0 && decided_share(f.total, i) < few) return f.question.eps[i];
    return std::nullopt;
}

/// The smallest eps of the sweep that decides most steps.
std::optional<double> muting_eps(const AdamQuestion& question, const AdamEffects& e) {
    for (std::size_t i = question.eps.size(); i-- > 0;)
        if (decided_share(e, i) > many) return question.eps[i];
    return std::nullopt;
}

std::string about_eps(const AdamFindings& f) {
    const double eps = f.usual_eps(), decided = decided_share(f.total, f.question.usual_eps);
    const std::optional<double> quiet = quiet_eps(f);
    std::string text = fmt::format("eps {:g} decides {} of the steps.", eps, percent(decided));
    if (decided >= few && quiet)
        text += fmt::format(" From {:g} down it decides less than {}.", *quiet, limit_percent(few));
    if (decided >= few && !quiet) text += " Every eps of the sweep decides more than that of the steps.";
    if (decided < few) text += fmt::format(" It could be as large as {:g}.", quiet.value_or(eps));
    std::vector<std::string> muted;
    for (const AdamTensor& t : f.tensors)
        if (decided_share(t.effects, t.usual_eps) > many)
            muted.push_back(shortened_name(printable(t.name), 40));
    if (muted.empty()) return text;
    const std::size_t n = muted.size();
    muted.resize(std::min<std::size_t>(n, 3));
    return text +
           fmt::format(" It mutes {}{}.", fmt::join(muted, ", "), n > 3 ? fmt::format(" and {} more", n - 3) : "");
}

/// Steps that even FP32 state leaves NaN or infinite.
std::uint64_t broken_steps(const AdamEffects& e, const AdamQuestion& question) {
    return e.states.front().eps[question.usual_eps].nonfinite;
}

bool nothing_known(const AdamEffects& e, const AdamQuestion& question) {
    return e.nonzero == 0 || broken_steps(e, question) == e.elements;
}

std::string about_states(const AdamFindings& f) {
    const AdamEffects& e = f.total;
    std::string text;
    if (const std::uint64_t broken = broken_steps(e, f.question); broken > 0)
        text = fmt::format(" {} of the steps are NaN or infinite with state in FP32 already.",
                           percent(broken, e.elements));
    for (std::size_t s = 1; s < e.states.size(); ++s) {
        const StateEffects& state = e.states[s];
        const double broken = share(state.eps[f.question.usual_eps].nonfinite, e.elements);
        const double underflow = share(state.v_underflow, e.nonzero), stuck = share(state.v_stuck, e.elements);
        const std::string_view name = f.question.states[s].name;
        if (broken > 0)
            text += fmt::format(" State in {}: {} of the steps are NaN or infinite.", name, percent(broken));
        else if (underflow >= few) text += fmt::format(" State in {}: v underflows in {}.", name, percent(underflow));
        if (stuck > many)
            text +=
                fmt::format(" v in {} cannot decay by beta2 {:g} in {} of the elements: keep it in FP32, or round it "
                            "stochastically.",
                            name, f.question.options.beta2, percent(stuck));
    }
    return text;
}

std::string about_weights(const AdamFindings& f) {
    const AdamEffects& e = f.total;
    std::string text;
    for (std::size_t i = 0; i < e.lost.size(); ++i)
        if (share(e.lost[i], e.updated) > 0.1)
            text += fmt::format(
                " Weights in {} lose {} of their updates: keep FP32 master weights, or round stochastically, or "
                "as Kahan.",
                f.question.weights[i].name, percent(e.lost[i], e.updated));
    return text;
}

} // namespace

void advise(AdamFindings& findings) {
    for (AdamTensor& t : findings.tensors) t.muted_from = muting_eps(findings.question, t.effects);
    findings.muted_from = muting_eps(findings.question, findings.total);
    if (nothing_known(findings.total, findings.question))
        findings.advice = "Advice: none, as no gradient is finite and not zero.";
    else findings.advice = "Advice: " + about_eps(findings) + about_states(findings) + about_weights(findings);
}

} // namespace amp::detail

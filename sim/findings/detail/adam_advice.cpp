#include <ampscope/sim/findings/detail/adam_advice.h>

#include <ampscope/sim/analysis/histogram.h>
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

/// The smallest eps of the sweep that decides most steps.
std::optional<double> muting_eps(const AdamQuestion& question, const AdamEffects& e) {
    for (std::size_t i = question.eps.size(); i-- > 0;)
        if (decided_share(e, i) > many) return question.eps[i];
    return std::nullopt;
}

/// The tensors that eps mutes; empty if it mutes none.
std::string about_muted(const AdamFindings& f) {
    std::vector<std::string> muted;
    for (const AdamTensor& t : f.tensors)
        if (decided_share(t.effects, t.usual_eps) > many) muted.push_back(shortened_name(printable(t.name), 40));
    if (muted.empty()) return "";
    const std::size_t n = muted.size();
    muted.resize(std::min<std::size_t>(n, 3));
    return fmt::format(" It mutes {}{}.", fmt::join(muted, ", "), n > 3 ? fmt::format(" and {} more", n - 3) : "");
}

std::string about_eps(const AdamFindings& f) {
    const double eps = f.usual_eps(), decided = decided_share(f.total, f.question.usual_eps);
    if (f.known() != Known::exact)
        return fmt::format("what eps decides is unknown, as {}. {} Of the gradients recorded as other than zero eps "
                           "{:g} decides the step of {}.",
                           censoring_text(f.censoring), way_to_know(), eps, percent(decided));
    const std::optional<std::size_t> quiet = quiet_eps(f.total, f.question);
    std::string text = fmt::format("eps {:g} decides {} of the steps.", eps, percent(decided));
    if (decided >= few && quiet)
        text += fmt::format(" From {:g} down it decides less than {}.", f.question.eps[*quiet], limit_percent(few));
    if (decided >= few && !quiet) text += " Every eps of the sweep decides more than that of the steps.";
    if (decided < few) text += fmt::format(" It could be as large as {:g}.", f.question.eps[*quiet]);
    return text;
}

/// Steps that even FP32 state leaves NaN or infinite.
std::uint64_t broken_steps(const AdamEffects& e, const AdamQuestion& question) {
    return e.states.front().eps[question.usual_eps].nonfinite;
}

/// The same in a sentence behind others.
std::string about_broken(const AdamFindings& f) {
    const std::string text = broken_text(f.total, f);
    return text.empty() ? "" : " " + text + ".";
}

std::string about_states(const AdamFindings& f) {
    const AdamEffects& e = f.total;
    std::string text = about_broken(f);
    const std::vector<std::string> faults = state_faults(e, f.question);
    if (!faults.empty())
        text += fmt::format(" In narrower formats m and v have faults: {}. Keep them in FP32, or round v "
                            "stochastically.",
                            fmt::join(faults, "; "));
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

double decided_share(const AdamEffects& effects, std::size_t e) {
    return share(effects.states.front().eps[e].dominated, effects.nonzero);
}

std::optional<std::size_t> quiet_eps(const AdamEffects& effects, const AdamQuestion& question) {
    for (std::size_t e = 0; e < question.eps.size(); ++e)
        if ((e == question.usual_eps || question.eps[e] > 0) && decided_share(effects, e) < few) return e;
    return std::nullopt;
}

std::optional<std::size_t> eps_that_will_do(const AdamEffects& effects, const AdamQuestion& question) {
    return decided_share(effects, question.usual_eps) < few ? question.usual_eps : quiet_eps(effects, question);
}

bool tells_nothing(const AdamEffects& effects, const AdamQuestion& question) {
    return effects.nonzero == 0 || broken_steps(effects, question) == effects.elements;
}

std::string nothing_text(const AdamEffects& effects, const std::optional<std::int64_t>& step) {
    const std::string of_step = step ? fmt::format(" of step {}", *step) : "";
    return effects.least_log2 // of those that are finite and not zero
               ? fmt::format("no weight{} is left finite: m and v keep the NaN of steps before", of_step)
               : fmt::format("no gradient{} is finite and not zero", of_step);
}

bool is_open(const AdamEffects& effects, const AdamQuestion& question, const Censoring& censoring) {
    if (censoring.hides_terms() || !censoring.hides()) return censoring.hides_terms();
    const std::size_t e = eps_that_will_do(effects, question).value_or(question.usual_eps);
    const std::uint64_t decided = effects.states.front().eps[e].dominated;
    return share(decided + censoring.zeros, effects.nonzero + censoring.zeros) >= few;
}

std::string broken_text(const AdamEffects& effects, const AdamFindings& findings) {
    const std::uint64_t broken = broken_steps(effects, findings.question);
    if (broken == 0) return "";
    const std::string share = percent(broken, effects.elements);
    const std::optional<NonfiniteGradient>& first = findings.nonfinite_gradient;
    if (!first) return fmt::format("{} of the steps are NaN or infinite with m and v in FP32 already", share);
    std::string since;
    if (first->step && first->step == findings.step) since = fmt::format(" in step {}", *first->step);
    else if (first->step) since = fmt::format(" from step {} on", *first->step);
    return fmt::format(
        "{} of the steps are NaN or infinite in every format, as the gradients themselves are{}, first in "
        "{}",
        share, since, shortened_name(printable(first->tensor), 40));
}

std::vector<std::string> state_faults(const AdamEffects& effects, const AdamQuestion& question) {
    std::vector<std::string> faults;
    const std::uint64_t in_fp32 = broken_steps(effects, question);
    for (std::size_t s = 1; s < effects.states.size(); ++s) {
        const StateEffects& state = effects.states[s];
        const std::string name = question.states[s].name();
        const std::uint64_t all_broken = state.eps[question.usual_eps].nonfinite;
        if (const std::uint64_t broken = all_broken - std::min(all_broken, in_fp32);
            broken > 0) { // what else these formats do does not matter then
            faults.push_back(
                fmt::format("in {}{} {}{} of the steps are NaN or infinite", name,
                            question.stored_eps(s, question.usual_eps) == 0 ? " eps is stored as 0, and" : "",
                            in_fp32 == 0 ? "" : "another ", percent(broken, effects.elements)));
            continue;
        }
        if (share(state.v_underflow, effects.nonzero) >= few)
            faults.push_back(
                fmt::format("v in {} underflows in {}", name, percent(state.v_underflow, effects.nonzero)));
        if (share(state.v_stuck, effects.elements) >= few)
            faults.push_back(fmt::format("v in {} cannot decay by beta2 {:g} in {} of the elements", name,
                                         question.options.beta2, percent(state.v_stuck, effects.elements)));
        if (share(state.m_underflow, effects.nonzero) >= few)
            faults.push_back(
                fmt::format("m in {} underflows in {}", name, percent(state.m_underflow, effects.nonzero)));
        const std::uint64_t steps = state.stretch.count();
        if (share(state.longer(), steps) >= few)
            faults.push_back(fmt::format("with m and v in {} {} of the steps are twice as long as in FP32, or longer",
                                         name, percent(state.longer(), steps)));
        if (share(state.shorter(), steps) >= few)
            faults.push_back(fmt::format("with m and v in {} {} of the steps are less than half as long as in FP32",
                                         name, percent(state.shorter(), steps)));
    }
    return faults;
}

void advise(AdamFindings& findings) {
    for (AdamTensor& t : findings.tensors) t.muted_from = muting_eps(findings.question, t.effects);
    findings.muted_from = muting_eps(findings.question, findings.total);
    if (tells_nothing(findings.total, findings.question) && !findings.censoring.hides_any())
        findings.advice =
            fmt::format("Advice: none, as {}.{}", nothing_text(findings.total, findings.step), about_broken(findings));
    else
        findings.advice =
            "Advice: " + about_eps(findings) + about_muted(findings) + about_states(findings) + about_weights(findings);
}

} // namespace amp::detail

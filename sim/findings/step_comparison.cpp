#include <ampscope/sim/findings/step_comparison.h>

#include <ampscope/sim/base/text.h>
#include <ampscope/sim/findings/detail/step_ranking.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace amp {

namespace {

constexpr double infinite_error = std::numeric_limits<double>::infinity();

/// The own error in the middle; of an even number the smaller one of two, so that one of two can stand out.
double middle_error(std::vector<double> errors) {
    if (errors.empty()) return 0;
    const auto middle = errors.begin() + static_cast<std::ptrdiff_t>((errors.size() - 1) / 2);
    std::ranges::nth_element(errors, middle);
    return *middle;
}

/// As the number by which modules are ranked: infinite if elements are, 0 if nothing is known.
double ranked_error(const std::optional<RelativeError>& e) {
    if (!e) return 0;
    return e->nonfinite > 0 ? infinite_error : e->relative.value_or(0);
}

/// Fills error and share of the modules that add errors, in their order.
void rank_modules(PrecisionStep& step) {
    step.by_effect = std::ranges::any_of(step.modules, [](const ModuleErrors& m) { return m.effect.has_value(); }) &&
                     std::ranges::all_of(step.modules, [](const ModuleErrors& m) { return m.effect || m.own() == 0; });
    double sum = 0;
    for (std::size_t i = 0; i < step.modules.size(); ++i) {
        const ModuleErrors& m = step.modules[i];
        const double error = step.by_effect ? ranked_error(m.effect) : m.own();
        if (error > 0) step.ranking.push_back({.module = i, .error = error});
        sum += error * error;
    }
    std::ranges::stable_sort(step.ranking, std::greater{}, &RankedModule::error);
    const auto infinite = std::ranges::count(step.ranking, infinite_error, &RankedModule::error);
    for (RankedModule& r : step.ranking)
        if (infinite == 0) r.share = r.error * r.error / sum;
        else r.share = r.error == infinite_error ? 1 / static_cast<double>(infinite) : 0;
}

/// Fills the median, and which modules stand out.
void find_outstanding(PrecisionStep& step) {
    const bool scaled = std::ranges::count_if(step.modules, &ModuleErrors::is_scaled) > 1;
    const auto can_stand_out = [&](const RankedModule& r) {
        return scaled ? step.modules[r.module].is_scaled() : r.error >= least_error;
    };
    std::vector<double> errors;
    for (const RankedModule& r : step.ranking)
        if (can_stand_out(r)) errors.push_back(r.error);
    step.median = middle_error(errors);
    for (RankedModule& r : step.ranking)
        r.stands_out = can_stand_out(r) && r.share >= outstanding_share &&
                       (r.error > outstanding * step.median || r.error == infinite_error);
}

/// What the first of the ranking does to the gradient: "fc2 alone moves it by 4 %".
std::string adds_text(const StepComparison& c, const PrecisionStep& step) {
    const RankedModule& first = step.ranking.front();
    const std::string name = shown_name(c.modules[first.module].name);
    if (first.error == infinite_error) return name + " alone makes elements of it infinite or NaN";
    return fmt::format("{} {} {}", name, step.by_effect ? "alone moves it by" : "has an own error of",
                       error_text(first.error));
}

/// What the first of the ranking add, and that they are to be kept.
std::string keeping_advice(const StepComparison& c, const PrecisionStep& step, const std::vector<std::string>& names) {
    double share = 0;
    for (const RankedModule& r : step.ranking)
        if (r.stands_out) share += r.share;
    constexpr std::size_t most = 5;
    std::vector<std::string> shown;
    for (std::size_t i = 0; i < std::min(most, names.size()); ++i) shown.push_back(shown_name(names[i]));
    if (names.size() > most) shown.push_back(fmt::format("{} more", names.size() - most));
    std::string text = fmt::format(
        " Keep {} in higher precision: {} of the squared errors of single modules ({}; the median module {}).",
        fmt::join(shown, ", "), (names.size() == 1 ? "it adds " : "they add ") + percent(share), adds_text(c, step),
        error_text(step.median));
    if (step.kept && step.kept->modules == names && step.kept->gradient.relative)
        text +=
            fmt::format(" Without a scaled cast there, the gradient is {} away.",
                        error_text(step.kept->gradient.nonfinite > 0 ? infinite_error : *step.kept->gradient.relative));
    return text;
}

std::string verdict_of(const StepComparison& c, const PrecisionStep& step) {
    const RelativeError& g = step.gradient;
    std::string text = step.precision + ": ";
    if (!c.loss) return text + "FP32's own loss is infinite or NaN, so that its gradients are no measure of others.";
    if (g.nonfinite > 0)
        text += fmt::format("{} of the model's gradient {} infinite or NaN.", plural(g.nonfinite, "element"),
                            g.nonfinite == 1 ? "is" : "are");
    else if (g.relative) text += fmt::format("the model's gradient is {} away from FP32's.", error_text(*g.relative));
    else text += "FP32's gradient is zero, and this one is not.";
    if (step.ranking.empty()) return text + " No module adds an error.";
    const std::vector<std::string> names = c.standing_out(step);
    if (!names.empty()) return text + keeping_advice(c, step, names);
    text += fmt::format(" No module stands out: {}", adds_text(c, step));
    const bool has_others = step.median > 0 && step.ranking.size() > 1;
    return text + (has_others ? fmt::format(", and the median module {}.", error_text(step.median)) : ".");
}

} // namespace

double ModuleErrors::own() const {
    double squares = 0;
    for (const std::optional<RelativeError>& e : {own_output, own_input_gradient, own_weight_gradient}) {
        if (!e) continue;
        if (e->nonfinite > 0) return infinite_error;
        if (e->relative) squares += *e->relative * *e->relative;
    }
    return std::sqrt(squares);
}

bool ModuleErrors::is_scaled() const { return casts.contains("input") || casts.contains("weight"); }

StepCasts ModuleErrors::all_casts() const {
    StepCasts all;
    for (const auto& by : casts) {
        if (is_scaled() && by.first.starts_with("output")) continue;
        all.nonzero += by.second.nonzero;
        all.underflow += by.second.underflow;
        all.saturated += by.second.saturated;
    }
    return all;
}

std::uint64_t ModuleErrors::nonfinite() const {
    std::uint64_t most = 0;
    for (const std::optional<RelativeError>& e :
         {output, output_gradient, weight_gradient, own_output, own_input_gradient, own_weight_gradient, effect})
        if (e) most = std::max(most, e->nonfinite);
    return most;
}

std::vector<std::string> StepComparison::standing_out(const PrecisionStep& step) const {
    std::vector<std::string> names;
    for (const RankedModule& r : step.ranking)
        if (r.stands_out) names.push_back(modules[r.module].name);
    return names;
}

std::string error_text(double error) {
    const double percent = 100 * error;
    if (!std::isfinite(error)) return "infinite";
    if (percent == 0) return "0 %";
    if (percent < 0.01 || percent >= 1e6) return fmt::format("{:.1e} %", percent);
    return percent < 99.5 ? fmt::format("{:.2g} %", percent) : fmt::format("{:.0f} %", percent);
}

std::string shown_name(const std::string& module) { return module.empty() ? "(model)" : module; }

void detail::judge(StepComparison& comparison) {
    for (PrecisionStep& step : comparison.precisions) {
        step.ranking.clear();
        rank_modules(step);
        find_outstanding(step);
        step.verdict = verdict_of(comparison, step);
    }
}

} // namespace amp

#include <ampscope/sim/findings/detail/adam_advice.h>
#include <ampscope/sim/findings/detail/comparison.h>

#include <ampscope/sim/base/text.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

namespace amp {

namespace {

/// The gradients by which all groups are judged, and the loss scale that each format needs for them.
struct JointGradients {
    MagnitudeHistogram all;
    Censoring censoring;                                       ///< what their records hide
    std::vector<std::pair<FormatSpec, Recommendation>> scales; ///< in the order of usual_formats_by_range()

    JointGradients(const std::vector<ComparisonGroup>& groups, const RecommendationOptions& options) {
        for (const ComparisonGroup& group : groups) {
            if (group.evidence == nullptr) continue;
            all.merge(group.evidence->magnitudes);
            censoring.merge(group.evidence->censoring());
        }
        for (const FormatSpec& f : usual_formats_by_range())
            scales.emplace_back(f, recommend(all, f, options, censoring));
    }
    [[nodiscard]] const Recommendation& scale_in(const FormatSpec& f) const {
        return std::ranges::find(scales, f, &std::pair<FormatSpec, Recommendation>::first)->second;
    }
};

/// For gradients without a run: which formats hold them, and at which scale, in words.
std::string held_by_range(const JointGradients& gradients) {
    std::vector<std::string> plain, scaled, none, unknown;
    for (const auto& [f, r] : gradients.scales) {
        if (r.known != Known::exact) unknown.push_back(f.name);
        else if (!r.log2_scale) none.push_back(f.name);
        else if (*r.log2_scale == 0) plain.push_back(f.name);
        else scaled.push_back(fmt::format("{} at loss scale {}", f.name, power_of_two(*r.log2_scale)));
    }
    std::vector<std::string> parts;
    if (!plain.empty()) parts.push_back(detail::listed(plain) + " unscaled");
    if (!scaled.empty()) parts.push_back(detail::listed(scaled));
    if (!none.empty()) parts.push_back(detail::listed(none) + " at no single loss scale");
    if (!unknown.empty()) parts.push_back("of " + detail::listed(unknown) + " the record does not tell");
    return fmt::format("{}", fmt::join(parts, ", "));
}

std::string about_range(const JointGradients& gradients) {
    if (gradients.all.nonzero() == 0)
        return "Format: no run is among these, and no gradient that is finite and not zero.";
    return fmt::format(
        "Format: no run is among these, so only their range tells which formats hold these gradients: {}.",
        held_by_range(gradients));
}

/// The same in a few words. Range alone settles nothing: precision decides, too, and no run shows it.
ShortAnswer range_answer(const JointGradients& gradients) {
    ShortAnswer answer{.question = "Format", .words = "unknown", .reason = {}, .state = ShortAnswer::State::open};
    answer.reason =
        gradients.all.nonzero() == 0
            ? "No run is among these, and no gradient that is finite and not zero."
            : fmt::format("No run is among these; by their range alone these hold: {}.", held_by_range(gradients));
    return answer;
}

std::string about_scale(const JointGradients& gradients, const RecommendationOptions& options) {
    const MagnitudeHistogram& all = gradients.all;
    const FormatSpec fp16 = format("fp16"), bf16 = format("bf16");
    const Recommendation& r = gradients.scale_in(fp16);
    const std::string hidden =
        r.known == Known::exact ? "" : fmt::format("{}. {}", censoring_text(r.censoring), way_to_know(r));
    if (all.nonzero() == 0 && !hidden.empty())
        return fmt::format("Loss scale: which one FP16 needs is unknown, as {}", hidden);
    if (all.nonzero() == 0)
        return "Loss scale: no finite, non-zero gradients were recorded, so what it must be is not known.";
    const std::string unscaled = percent(all.classify(fp16, 0).underflow, all.nonzero());
    const std::string limit = limit_percent(options.limit), at_least = gradients.censoring.hides() ? "at least " : "";
    std::string text;
    if (r.known == Known::unknown) text = "whether FP16 needs one is unknown";
    else if (r.known == Known::bound && r.log2_scale)
        text = fmt::format("start FP16 at {}: nothing recorded overflows up to {}, and unscaled at least {} of the "
                           "non-zero gradients become zero",
                           power_of_two(*r.log2_scale), power_of_two(r.highest_safe), unscaled);
    else if (!r.window && r.known == Known::exact)
        text = fmt::format("no single one holds these gradients in FP16: above {} some overflow, below {} more than {} "
                           "of the non-zero ones become zero",
                           power_of_two(r.highest_safe), power_of_two(r.lowest_enough), limit);
    else if (!r.log2_scale)
        text = fmt::format("FP16 needs one beyond {}, whose inverse is no normal number of FP32",
                           power_of_two(largest_log2_scale));
    else if (r.log2_scale == 0)
        text = fmt::format("FP16 needs none here: unscaled {}{} of the non-zero gradients become zero, and none "
                           "overflows",
                           at_least, unscaled);
    else
        text = fmt::format("start FP16 at {}: nothing recorded overflows up to {}, and from {} on less than {} of the "
                           "non-zero gradients become zero (unscaled: {}{})",
                           power_of_two(*r.log2_scale), power_of_two(r.highest_safe), power_of_two(r.lowest_enough),
                           limit, at_least, unscaled);
    const ClassCounts wide = all.classify(bf16, 0);
    text += wide.underflow + wide.overflow == 0
                ? "; BF16 needs none."
                : fmt::format("; BF16 unscaled zeroes {}.", percent(wide.underflow, all.nonzero()));
    if (const std::uint64_t broken = all.nan + all.inf; broken > 0)
        text += fmt::format(" {} of the {} {} NaN or infinite as recorded; this is about the others.", grouped(broken),
                            plural(all.count(), "element"), broken == 1 ? "is" : "are");
    if (hidden.empty()) return "Loss scale: " + text;
    return fmt::format("Loss scale: {} How much underflows is unknown, as {}", text, hidden);
}

/// What follows if some format of m and v has faults; `advised` may be null. An advised run that keeps them in a narrow
/// format is no contradiction: its end was seen, the faults were, too.
std::string state_advice(const ComparisonRow* advised) {
    const auto format_in = [&](const char* pointer) {
        return advised == nullptr ? "" : text_at(advised->runs.front()->configuration, pointer);
    };
    const std::string m = format_in("/precision/state_formats/m"), v = format_in("/precision/state_formats/v");
    if (m.empty() || v.empty()) return ": keep m and v in FP32.";
    if (m == "fp32" && v == "fp32") return fmt::format(": keep m and v in FP32, as {} does.", advised->label);
    return fmt::format(". {}, advised above, keeps {} and ends within the margin of FP32 all the same: it trades that "
                       "safety for memory, and longer runs may show the difference; m and v in FP32 have no such "
                       "faults.",
                       advised->label,
                       m == v ? fmt::format("m and v in {}", m) : fmt::format("m in {} and v in {}", m, v));
}

/// Adam in all groups together that were asked about the same values of eps.
struct JointAdam {
    AdamEffects all;
    Censoring censoring;                  ///< what the records of their gradients hide
    const AdamFindings* asked = nullptr;  ///< the first of them; null: none
    const AdamFindings* broken = nullptr; ///< the first of them whose gradients are not all finite; null: none
    const RecordedRun* other = nullptr;   ///< a run that another optimizer trained; null: none

    explicit JointAdam(const std::vector<ComparisonGroup>& groups) {
        for (const ComparisonGroup& group : groups) {
            if (other == nullptr && group.evidence != nullptr && !may_be_adam(group.evidence->facts))
                other = group.evidence;
            if (broken == nullptr && group.adam && group.adam->nonfinite_gradient) broken = &*group.adam;
            if (!group.adam || (asked != nullptr && group.adam->question.eps != asked->question.eps)) continue;
            asked = &*group.adam;
            all.merge(group.adam->total);
            censoring.merge(group.adam->censoring);
        }
    }
    [[nodiscard]] bool is_open() const { return detail::is_open(all, asked->question, censoring); }
    [[nodiscard]] bool tells_nothing() const {
        return detail::tells_nothing(all, asked->question) && !censoring.hides_any();
    }
    /// "no gradient of step 90 is finite and not zero"
    [[nodiscard]] std::string nothing() const { return detail::nothing_text(all, asked->step); }
    /// "what underflowed was never recorded: ..."
    [[nodiscard]] std::string hidden() const { return censoring_text(censoring); }
};

std::string decided_percent(const AdamEffects& effects, std::size_t e) {
    return percent(effects.states.front().eps[e].dominated, effects.nonzero);
}

/// What eps and the formats of m and v do; empty if other optimizers trained.
std::string about_adam(const JointAdam& adam, const std::vector<ComparisonGroup>& groups) {
    if (adam.asked == nullptr)
        return adam.other != nullptr ? ""
                                     : "Adam: no gradients of weights were recorded, so what eps does is not known.";
    if (adam.tells_nothing()) return fmt::format("Adam: {}, so what eps does is not known.", adam.nothing());
    const AdamQuestion& q = adam.asked->question;
    const std::optional<std::size_t> will_do = detail::eps_that_will_do(adam.all, q);
    const std::string usual = decided_percent(adam.all, q.usual_eps);
    const double eps = q.eps[q.usual_eps];
    std::string text = fmt::format("eps {:g} decides {} of the steps", eps, usual);
    if (will_do == q.usual_eps)
        text = fmt::format("eps {:g} will do: with m and v in FP32 it decides {} of the steps", eps, usual);
    if (will_do && will_do != q.usual_eps)
        text += fmt::format("; {:g} would decide {}", q.eps[*will_do], decided_percent(adam.all, *will_do));
    if (adam.is_open())
        text = fmt::format("what eps decides is unknown, as {}; recorded were gradients of which eps {:g} decides the "
                           "step of {}",
                           adam.hidden(), eps, usual);
    if (const std::string broken = detail::broken_text(adam.all, adam.broken != nullptr ? *adam.broken : *adam.asked);
        !broken.empty())
        text += "; " + broken;
    const std::vector<std::string> faults = detail::state_faults(adam.all, q);
    for (const std::string& fault : faults) text += "; " + fault;
    text += faults.empty() ? "." : state_advice(detail::advised_row(groups));
    return fmt::format("Adam: {}{}", text, adam.is_open() ? " " + way_to_know() : "");
}

/// " Each network alone: a 2^3, b 2^7." if what networks need differs.
std::string alone(const std::vector<std::pair<std::string, std::string>>& each) {
    const auto differs = [&](const auto& network) { return network.second != each.front().second; };
    if (std::ranges::none_of(each, differs)) return "";
    std::vector<std::string> parts;
    for (const auto& [name, what] : each) parts.push_back(fmt::format("{} {}", name, what));
    return fmt::format(" Each network alone: {}.", fmt::join(parts, ", "));
}

/// The loss scale that each network needs by itself in FP16.
std::string scales_alone(const std::vector<ComparisonGroup>& groups) {
    std::vector<std::pair<std::string, std::string>> each;
    for (const ComparisonGroup& group : groups) {
        if (group.evidence == nullptr || group.evidence->magnitudes.nonzero() == 0) continue;
        for (const ScaleCurve& curve : group.evidence->scales.curves)
            if (const auto scale = curve.recommendation.log2_scale; curve.format == format("fp16"))
                each.emplace_back(group.name, !scale        ? "none that holds"
                                              : *scale == 0 ? "none needed"
                                                            : power_of_two(*scale));
    }
    return alone(each);
}

ShortAnswer scale_answer(const JointGradients& gradients, const std::vector<ComparisonGroup>& groups,
                         const RecommendationOptions& options) {
    ShortAnswer answer{.question = "Loss scale", .words = "unknown", .reason = {}, .state = ShortAnswer::State::open};
    const Recommendation& r = gradients.scale_in(format("fp16"));
    const std::string hidden = r.known == Known::exact ? "" : censoring_text(r.censoring);
    const std::string limit = limit_percent(options.limit);
    if (r.known == Known::unknown) answer.reason = fmt::format("Whether FP16 needs one is unknown: {}.", hidden);
    else if (gradients.all.nonzero() == 0) answer.reason = "No gradient that is finite and not zero was recorded.";
    else if (r.known == Known::bound && r.log2_scale) {
        answer.words = "FP16: " + power_of_two(*r.log2_scale);
        answer.reason = fmt::format("Nothing recorded overflows up to {}; how much underflows is unknown: {}.",
                                    power_of_two(r.highest_safe), hidden);
    } else if (!r.log2_scale) {
        answer.words = "FP16: none holds";
        answer.reason =
            r.window ? fmt::format("FP16 needs one beyond {}.", power_of_two(largest_log2_scale))
                     : fmt::format("Above {} some gradients overflow, and below {} no fewer than {} become zero.",
                                   power_of_two(r.highest_safe), power_of_two(r.lowest_enough), limit);
    } else {
        answer.state = ShortAnswer::State::settled;
        answer.words = *r.log2_scale == 0 ? "none needed" : "FP16: " + power_of_two(*r.log2_scale);
        answer.reason = fmt::format("Safe from {} to {}: no {}gradient overflows, and less than {} become zero.",
                                    power_of_two(r.lowest_enough), power_of_two(r.highest_safe),
                                    gradients.all.nan + gradients.all.inf > 0 ? "finite " : "", limit);
        const ClassCounts wide = gradients.all.classify(format("bf16"), 0);
        if (*r.log2_scale != 0 && wide.underflow + wide.overflow == 0) answer.reason += " BF16 needs none.";
        answer.reason += scales_alone(groups);
        if (*r.log2_scale == 0 && !gradients.censoring.terms) answer.reason += fmt::format(" {}", without_activations);
    }
    return answer;
}

ShortAnswer adam_answer(const JointAdam& adam, const std::vector<ComparisonGroup>& groups) {
    ShortAnswer answer{.question = "Adam's eps", .words = "unknown", .reason = {}, .state = ShortAnswer::State::open};
    if (adam.asked == nullptr && adam.other != nullptr)
        return {.question = answer.question,
                .words = "no Adam",
                .reason =
                    fmt::format("The optimizer is {}, which has no eps like Adam's.", adam.other->facts.optimizer)};
    if (adam.asked == nullptr) answer.reason = "No gradients of weights were recorded as tensors.";
    else if (adam.tells_nothing()) answer.reason = fmt::format("What it decides is unknown: {}.", adam.nothing());
    else if (adam.is_open()) answer.reason = fmt::format("What it decides is unknown: {}.", adam.hidden());
    else {
        const AdamQuestion& q = adam.asked->question;
        const auto words = [&](const AdamEffects& effects) {
            const std::optional<std::size_t> e = detail::eps_that_will_do(effects, q);
            return e ? fmt::format("{:g}", q.eps[*e]) : "none tried";
        };
        const std::optional<std::size_t> will_do = detail::eps_that_will_do(adam.all, q);
        answer.words = words(adam.all);
        if (will_do) answer.state = ShortAnswer::State::settled;
        const std::string usual = decided_percent(adam.all, q.usual_eps);
        answer.reason = will_do == q.usual_eps ? fmt::format("It decides {} of the steps", usual)
                                               : fmt::format("{:g} decides {} of the steps", q.eps[q.usual_eps], usual);
        if (will_do && will_do != q.usual_eps)
            answer.reason += fmt::format(", {:g} only {}", q.eps[*will_do], decided_percent(adam.all, *will_do));
        answer.reason +=
            detail::state_faults(adam.all, q).empty() ? "." : ", with m and v in FP32; narrower formats have faults.";
        std::vector<std::pair<std::string, std::string>> each;
        for (const ComparisonGroup& group : groups)
            if (group.adam && group.adam->question.eps == q.eps && group.adam->total.nonzero > 0)
                each.emplace_back(group.name, words(group.adam->total));
        answer.reason += alone(each);
    }
    return answer;
}

/// What the recorder says of the training loop; none if it says nothing.
std::optional<ShortAnswer> loop_answer(const std::vector<RecordedRun>& runs) {
    std::vector<std::string> remarks;
    for (const RecordedRun& run : runs) remarks.insert(remarks.end(), run.remarks.begin(), run.remarks.end());
    if (remarks.empty()) return std::nullopt;
    std::string reason = sentence(remarks.front());
    if (remarks.size() > 1) reason += fmt::format(" And {} more.", grouped(remarks.size() - 1));
    return ShortAnswer{.question = "Training loop",
                       .words = plural(remarks.size(), "warning"),
                       .reason = std::move(reason),
                       .state = ShortAnswer::State::alarm};
}

} // namespace

void detail::add_verdict(ComparisonFindings& findings, const ComparisonOptions& options) {
    const std::vector<ComparisonGroup>& groups = findings.groups;
    const bool trained = std::ranges::any_of(groups, [](const ComparisonGroup& g) {
        return std::ranges::any_of(g.rows, [](const ComparisonRow& r) { return !r.runs.front()->steps.empty(); });
    });
    const JointGradients gradients(groups, options.recommendation);
    const JointAdam adam(groups);
    findings.answers = {trained ? format_answer(groups) : range_answer(gradients),
                        scale_answer(gradients, groups, options.recommendation), adam_answer(adam, groups)};
    for (auto& alarm : {loop_answer(findings.runs), stability_answer(groups, options.limits.spikes)})
        if (alarm) findings.answers.push_back(*alarm);
    findings.verdict = {trained ? about_format(groups) : about_range(gradients),
                        about_scale(gradients, options.recommendation), about_adam(adam, groups),
                        about_stability(groups, options.limits.spikes)};
    std::erase(findings.verdict, "");
}

} // namespace amp

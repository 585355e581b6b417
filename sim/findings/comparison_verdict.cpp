#include <ampscope/sim/findings/detail/comparison.h>

#include <ampscope/formats/codec.h>
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

/// For gradients without a run: which formats hold them, and at which scale.
std::string about_range(const JointGradients& gradients) {
    if (gradients.all.nonzero() == 0)
        return "Format: no run is among these, and no gradient that is finite and not zero.";
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
    return fmt::format(
        "Format: no run is among these, so only their range tells which formats hold these gradients: {}.",
        fmt::join(parts, ", "));
}

std::string about_scale(const JointGradients& gradients, const RecommendationOptions& options) {
    const MagnitudeHistogram& all = gradients.all;
    const FormatSpec fp16 = format("fp16"), bf16 = format("bf16");
    const Recommendation& r = gradients.scale_in(fp16);
    const std::string hidden =
        r.known == Known::exact ? "" : fmt::format("{}. {}", censoring_text(r.censoring, all.count()), way_to_know(r));
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
    return fmt::format(". {}, advised above, keeps {} and ends as FP32 does all the same: it trades that safety for "
                       "memory, and longer runs may show the difference; m and v in FP32 have no such faults.",
                       advised->label,
                       m == v ? fmt::format("m and v in {}", m) : fmt::format("m in {} and v in {}", m, v));
}

/// What eps and the formats of m and v do; empty if other optimizers trained.
std::string about_adam(const std::vector<ComparisonGroup>& groups) {
    constexpr double few = 0.01;
    AdamEffects all;
    const AdamFindings* asked = nullptr;
    for (const ComparisonGroup& group : groups) {
        if (!group.adam || (asked != nullptr && group.adam->question.eps != asked->question.eps)) continue;
        asked = &*group.adam;
        all.merge(group.adam->total);
    }
    const auto has_other = [](const ComparisonGroup& g) {
        return g.evidence != nullptr && !may_be_adam(g.evidence->facts);
    };
    if (asked == nullptr && std::ranges::any_of(groups, has_other)) return "";
    if (asked == nullptr) return "Adam: no gradients of weights were recorded, so what eps does is not known.";
    if (all.nonzero == 0 || all.states.front().eps[asked->question.usual_eps].nonfinite == all.elements)
        return "Adam: no weight has a finite, non-zero gradient, so what eps does is not known.";
    const AdamQuestion& q = asked->question;
    const double eps = q.eps[q.usual_eps];
    const auto decided = [&](std::size_t state, std::size_t e) {
        return Share{all.states[state].eps[e].dominated, all.nonzero}.rate();
    };
    std::string text;
    bool faults = false;
    if (decided(0, q.usual_eps) < few)
        text = fmt::format("eps {:g} will do: with m and v in FP32 it decides {} of the steps", eps,
                           percent(decided(0, q.usual_eps)));
    else {
        text = fmt::format("eps {:g} decides {} of the steps", eps, percent(decided(0, q.usual_eps)));
        for (std::size_t e = q.usual_eps; e < q.eps.size(); ++e)
            if (q.eps[e] > 0 && decided(0, e) < few) {
                text += fmt::format("; {:g} would decide {}", q.eps[e], percent(decided(0, e)));
                break;
            }
    }
    for (std::size_t s = 1; s < q.states.size(); ++s) {
        const Share stuck{all.states[s].v_stuck, all.elements},
            broken{all.states[s].eps[q.usual_eps].nonfinite, all.elements};
        const std::string name = q.states[s].name;
        const bool vanishes = quantize(q.states[s], eps) == 0;
        faults = faults || vanishes || stuck.rate() > few;
        if (vanishes)
            text += fmt::format("; in {} eps is stored as 0, and {} of the steps are NaN or infinite", name,
                                percent(broken.part, broken.whole));
        else if (stuck.rate() > few)
            text += fmt::format("; v in {} cannot decay in {} of the elements", name, percent(stuck.part, stuck.whole));
    }
    return "Adam: " + text + (faults ? state_advice(detail::advised_row(groups)) : ".");
}

} // namespace

std::vector<std::string> detail::verdict(const std::vector<ComparisonGroup>& groups, const ComparisonOptions& options) {
    const bool trained = std::ranges::any_of(groups, [](const ComparisonGroup& g) {
        return std::ranges::any_of(g.rows, [](const ComparisonRow& r) { return !r.runs.front()->steps.empty(); });
    });
    const JointGradients gradients(groups, options.recommendation);
    std::vector<std::string> sentences = {trained ? about_format(groups) : about_range(gradients),
                                          about_scale(gradients, options.recommendation), about_adam(groups),
                                          about_stability(groups, options.limits.spikes)};
    std::erase(sentences, "");
    return sentences;
}

} // namespace amp

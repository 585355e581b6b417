// What a comparison says of each precision and of each known effect, in sentences.
#include <ampscope/sim/findings/detail/comparison.h>

#include <ampscope/sim/base/text.h>
#include <ampscope/sim/train/configuration.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

namespace amp {

namespace {

/// One precision, with its rows in all groups.
struct Candidate {
    std::string label;
    std::vector<std::pair<const ComparisonGroup*, const ComparisonRow*>> rows;

    [[nodiscard]] bool all(Standing standing) const {
        return std::ranges::all_of(rows, [&](const auto& item) { return item.second->standing == standing; });
    }
    [[nodiscard]] bool any(Standing standing) const {
        return std::ranges::any_of(rows, [&](const auto& item) { return item.second->standing == standing; });
    }
    /// How it stands in all groups together: worse if it is worse or broken in one of them.
    [[nodiscard]] Standing standing() const {
        if (any(Standing::broken) || any(Standing::worse)) return Standing::worse;
        if (all(Standing::holds)) return Standing::holds;
        return any(Standing::unclear) ? Standing::unclear : Standing::unknown;
    }
    [[nodiscard]] const ComparisonRow& first() const { return *rows.front().second; }
};

std::vector<Candidate> candidates_of(const std::vector<ComparisonGroup>& groups) {
    std::vector<Candidate> candidates;
    for (const ComparisonGroup& group : groups)
        for (const ComparisonRow& row : group.rows) {
            if (row.standing == Standing::reference) continue;
            auto found = std::ranges::find(candidates, row.label, &Candidate::label);
            if (found == candidates.end()) found = candidates.insert(found, {row.label, {}});
            found->rows.emplace_back(&group, &row);
        }
    return candidates;
}

/// Preference: 16 bits before fewer bits, which need scales and special hardware; then no loss scaling; then less
/// memory.
auto rank(const ComparisonRow& row) {
    return std::tuple(row.operand_bits < 16, row.operand_bits, row.scales_loss, row.bytes_per_parameter.value_or(0));
}

/// The candidates that hold, the preferred one first.
std::vector<const Candidate*> holding_of(const std::vector<Candidate>& candidates) {
    std::vector<const Candidate*> holding;
    for (const Candidate& c : candidates)
        if (c.standing() == Standing::holds) holding.push_back(&c);
    std::ranges::stable_sort(holding, [](const auto* a, const auto* b) { return rank(a->first()) < rank(b->first()); });
    return holding;
}

/// "+0.036 (0.031 to 0.041)", or without the interval if it is infinite.
std::string interval_text(const MeanInterval& x) {
    return std::isfinite(x.low) ? fmt::format("{:+.2g} ({:.2g} to {:.2g})", x.mean, x.low, x.high)
                                : fmt::format("{:+.2g}", x.mean);
}

/// The least difference that can be told from noise.
double noise_of(const Difference& d) { return d.interval.high - d.interval.mean; }

/// A difference, and what it is known by.
std::string difference_text(const Difference& d) {
    std::string text = interval_text(d.interval);
    switch (d.basis) {
    case IntervalBasis::seeds: return text + fmt::format(", {} seeds", d.interval.count);
    case IntervalBasis::means:
        return text + (d.interval.count > 1
                           ? fmt::format(", other seeds than FP32's, {} at least", d.interval.count)
                           : std::string(", another seed than FP32's: how much of it is noise cannot be told"));
    case IntervalBasis::steps:
        return fmt::format("{:+.2g}, one seed: differences below {:.2g} cannot be told from noise", d.interval.mean,
                           noise_of(d));
    case IntervalBasis::none: return text + ", one seed: how much of it is noise cannot be told";
    }
    return text;
}

/// How one could know, if these runs cannot tell.
std::string way_out(const Difference& d) {
    if (d.standing != Standing::unclear || d.interval.count < 2) return "";
    return d.seeds_needed
               ? fmt::format(": {} seeds would tell with {} probability", *d.seeds_needed, limit_percent(planned_power))
               : ": no number of seeds up to 1,000 would tell, the difference sits at the margin";
}

/// The answer for another quantity than the final loss: "; accuracy cannot be told: 14 seeds would tell with
/// 80 % probability".
std::string answer_text(std::string_view quantity, const std::optional<Difference>& d, Standing of_loss) {
    if (!d) return "";
    const bool contrary = d->standing == Standing::worse && of_loss == Standing::holds;
    return fmt::format("; {}{} {}{}", contrary ? "but " : "", quantity, words_of(d->standing), way_out(*d));
}

std::string divergence_text(const ComparisonRow& row) {
    std::optional<std::int64_t> first;
    for (const RecordedRun* run : row.runs)
        if (const auto at = run->broken_at(); at && (!first || *at < *first)) first = at;
    return fmt::format("{} of {} diverged{}, FP32 did not", row.diverged, plural(row.seeds, "seed"),
                       first ? fmt::format(" (NaN or infinite from step {} on)", *first) : "");
}

/// Why a row has no difference to FP32.
std::string_view why_not_compared(const ComparisonGroup& group, const ComparisonRow& row) {
    if (group.reference == nullptr) return "there is no FP32 run of this network and data";
    return row.loss ? "its last step is not FP32's" : "it has no finite final loss";
}

/// How one row stands: "gpt on alice: +0.003 (-0.001 to 0.007), 8 seeds"; `told`: "gpt on alice: holds, +0.003 ...".
std::string standing_text(const ComparisonGroup& group, const ComparisonRow& row, bool told) {
    if (row.standing == Standing::broken)
        return fmt::format("{}: {}", group.name,
                           group.reference != nullptr
                               ? divergence_text(row)
                               : fmt::format("{} of {} diverged", row.diverged, plural(row.seeds, "seed")));
    if (!row.over) return fmt::format("{}: {}", group.name, why_not_compared(group, row));
    std::string text = fmt::format("{}: {}{}{}; margin {:.2g}{}", group.name, told ? words_of(row.standing) : "",
                                   told ? ", " : "", difference_text(*row.over), group.margin, way_out(*row.over));
    return text + answer_text("validation loss", row.validation_over, row.standing) +
           answer_text("accuracy", row.accuracy_lost, row.standing);
}

std::string reasons_of(const Candidate& c) {
    std::vector<std::string> parts;
    for (const auto& [group, row] : c.rows) parts.push_back(standing_text(*group, *row, c.rows.size() > 1));
    return fmt::format("{}", fmt::join(parts, "; "));
}

std::string names_of(const std::vector<const Candidate*>& candidates) {
    std::vector<std::string> names;
    for (const Candidate* c : candidates) names.push_back(c->label);
    return detail::listed(names);
}

/// What one seed tells of precisions that its own steps do not decide; empty if there are more seeds, or no logs.
std::string about_one_seed(const std::vector<const Candidate*>& open) {
    std::vector<std::string> limits;
    for (const Candidate* c : open) {
        double noise = 0;
        for (const auto& [group, row] : c->rows) {
            if (!row->over || row->over->basis != IntervalBasis::steps) return "";
            noise = std::max(noise, noise_of(*row->over));
        }
        limits.push_back(fmt::format("{:.2g} ({})", noise, c->label));
    }
    if (limits.empty()) return "";
    return fmt::format("one seed: differences below {} cannot be told from noise, and that a format holds only more "
                       "seeds can show",
                       detail::listed(limits));
}

/// What runs tell of an effect whose least size of interest is the margin; with a margin of 0 any size is.
std::string_view effect_words(bool appears, const MeanInterval& of, double margin) {
    if (appears) return "it appears";
    if (of.high < 0) return "the opposite appears";
    return of.high < margin ? "not seen, and smaller than the margin" : "cannot be told";
}

/// What an effect does to the gradients of the first step, and how long the sums are in which it arises.
std::string gradients_text(const EffectFinding& e) {
    std::string text;
    if (e.gradient_error) {
        const bool appears = e.gradient_error->standing == Standing::worse;
        std::vector<double> errors;
        for (const RecordedRun* run : e.recovers->runs)
            if (const auto error = number_at(run->result, "/gradient_error")) errors.push_back(*error);
        text = fmt::format(" (first gradients, which are {:.2g} from FP32's: {}, {})", spread_of(errors).mean,
                           effect_words(appears, e.gradient_error->interval, 0), difference_text(*e.gradient_error));
    }
    if (e.longest_sum)
        text += fmt::format(" (sums of at most {} products)", grouped(static_cast<std::uint64_t>(*e.longest_sum)));
    return text;
}

/// What would tell of a run that is alone whether another format does: "Train it again ... and ask about both".
std::string second_run(const RecordedRun& run, bool is_fp32) {
    const RunFacts& facts = run.facts;
    const std::string seed = facts.seed ? fmt::format("{:.17g}", *facts.seed) : "";
    if (facts.tool == "amp-train")
        return fmt::format("Train both, with what else was given as it was: amp-train{} --precision {}{} --record "
                           "RUNS; then ask: amp-report RUNS",
                           command_options(run.configuration) + fmt::format(" --steps {}", run.steps.size()),
                           is_fp32 ? "fp32,amp-bf16,amp-fp16" : "fp32," + run.label,
                           seed.empty() ? "" : " --seed " + seed);
    const std::string_view how = is_fp32 ? "under torch.autocast with dtype=torch.bfloat16"
                                         : "in FP32 (in PyTorch: without autocast and without a loss scaler)";
    return fmt::format("Train it again {} from the same seed{}, record that into another folder, and ask about both: "
                       "amp-report {} OTHER",
                       how, seed.empty() ? "" : fmt::format(" ({})", seed), run.name);
}

/// The row of the only run; null if there are several.
const ComparisonRow* lone_row(const std::vector<ComparisonGroup>& groups) {
    const bool lone =
        groups.size() == 1 && groups.front().rows.size() == 1 && groups.front().rows.front().runs.size() == 1;
    return lone ? &groups.front().rows.front() : nullptr;
}

/// Of a run that is alone: that it cannot tell, and what would.
std::string about_lone_run(const ComparisonRow& row) {
    const bool is_fp32 = row.label == "fp32";
    return fmt::format("Format: one run alone, in {}, does not tell whether {}. {}.", row.label,
                       is_fp32 ? "another format would do" : "it trains as well as FP32 would",
                       second_run(*row.runs.front(), is_fp32));
}

bool has_failed_fp32(const std::vector<Candidate>& candidates) {
    return std::ranges::any_of(candidates,
                               [](const Candidate& c) { return c.label == "fp32" && c.any(Standing::broken); });
}

/// "It ends within the margin of FP32 (cnn on digits: loss +0.0034, margin 0.036) and needs no loss scale."
std::string why_it_holds(const Candidate& best) {
    std::vector<std::string> parts;
    for (const auto& [group, row] : best.rows)
        parts.push_back(
            fmt::format("{}: loss {:+.2g}, margin {:.2g}", group->name, row->over->interval.mean, group->margin));
    return fmt::format("It ends within the margin of FP32 ({}){}.", fmt::join(parts, "; "),
                       best.first().scales_loss ? "" : " and needs no loss scale");
}

/// The preferred precision of each network, where they differ: "amp-fp16 (cnn on digits)". Empty for one network, and
/// if no precision but FP32 holds in any.
std::vector<std::string> best_in_each(const std::vector<ComparisonGroup>& groups) {
    std::vector<std::string> each;
    bool any = false;
    for (const ComparisonGroup& group : groups) {
        if (group.reference == nullptr) continue;
        const ComparisonRow* best = nullptr;
        for (const ComparisonRow& row : group.rows)
            if (row.standing == Standing::holds && (best == nullptr || rank(row) < rank(*best))) best = &row;
        any = any || best != nullptr;
        each.push_back(fmt::format("{} ({})", best != nullptr ? best->label : "FP32", group.name));
    }
    return any && each.size() > 1 ? each : std::vector<std::string>();
}

/// Why there is nothing to compare with.
std::string without_reference(const std::vector<Candidate>& candidates) {
    return has_failed_fp32(candidates)
               ? "Format: FP32's own loss is not finite: no format is to blame; look at the learning rate and the "
                 "data."
               : "Format: none of these runs is in FP32, so which one trains as well is not known; add one (fp32).";
}

} // namespace

std::string detail::listed(const std::vector<std::string>& words) {
    if (words.size() < 2) return words.empty() ? "" : words.front();
    const std::vector<std::string> first(words.begin(), words.end() - 1);
    return fmt::format("{} and {}", fmt::join(first, ", "), words.back());
}

const ComparisonRow* detail::advised_row(const std::vector<ComparisonGroup>& groups) {
    const std::vector<Candidate> candidates = candidates_of(groups);
    const std::vector<const Candidate*> holding = holding_of(candidates);
    return holding.empty() ? nullptr : &holding.front()->first();
}

std::string detail::about_format(const std::vector<ComparisonGroup>& groups) {
    const std::vector<Candidate> candidates = candidates_of(groups);
    if (const ComparisonRow* const lone = lone_row(groups); lone != nullptr && lone->standing != Standing::broken)
        return about_lone_run(*lone);
    if (std::ranges::none_of(groups, [](const ComparisonGroup& g) { return g.reference != nullptr; }))
        return without_reference(candidates);
    if (candidates.empty())
        return "Format: these runs are all in FP32, so whether another format would do is not known; add one.";
    std::vector<const Candidate*> holding = holding_of(candidates), failing, open;
    for (const Candidate& c : candidates) {
        const Standing standing = c.standing();
        if (standing == Standing::worse) failing.push_back(&c);
        else if (standing == Standing::unclear) open.push_back(&c);
    }
    const std::string one_seed = about_one_seed(open);
    std::string about_open = open.empty()       ? ""
                             : one_seed.empty() ? "these runs cannot tell of " + names_of(open)
                                                : one_seed;
    std::string text = "Format: stay in FP32, as no other format is known to hold";
    if (!holding.empty()) {
        const Candidate& best = *holding.front();
        text = fmt::format("Format: {}, which ends within the margin of FP32{}", best.label,
                           best.first().scales_loss ? "" : " and needs no loss scale");
        holding.erase(holding.begin());
        if (!holding.empty())
            text += fmt::format("; {} end{} within it, too", names_of(holding), holding.size() == 1 ? "s" : "");
    } else if (!one_seed.empty()) {
        text = "Format: " + std::exchange(about_open, "");
    }
    if (!failing.empty()) text += fmt::format("; not {}", names_of(failing));
    if (!about_open.empty()) text += "; " + about_open;
    return text + ".";
}

ShortAnswer detail::format_answer(const std::vector<ComparisonGroup>& groups) {
    ShortAnswer answer{.question = "Format", .words = "unknown", .reason = {}, .state = ShortAnswer::State::open};
    const std::vector<Candidate> candidates = candidates_of(groups);
    const std::vector<const Candidate*> holding = holding_of(candidates);
    std::vector<const Candidate*> open;
    for (const Candidate& c : candidates)
        if (c.standing() == Standing::unclear) open.push_back(&c);
    const auto has_reference = [](const ComparisonGroup& g) { return g.reference != nullptr; };
    if (const ComparisonRow* const lone = lone_row(groups); lone != nullptr && lone->standing != Standing::broken)
        answer.reason =
            fmt::format("One run alone, in {}, does not tell; the verdict says which second one would.", lone->label);
    else if (std::ranges::none_of(groups, has_reference))
        answer.reason = has_failed_fp32(candidates)
                            ? "FP32's own loss is not finite: no format is to blame."
                            : "None of these runs is in FP32, so there is nothing to compare with.";
    else if (candidates.empty()) answer.reason = "All of these runs are in FP32.";
    else if (!holding.empty()) {
        answer.words = holding.front()->label;
        answer.reason = why_it_holds(*holding.front());
        answer.state = ShortAnswer::State::settled;
    } else if (const auto each = best_in_each(groups); !each.empty()) {
        answer.words = fmt::format("{}", fmt::join(each, "; "));
        answer.reason = "No format holds in every network.";
        answer.state = ShortAnswer::State::settled;
    } else if (const std::string one_seed = about_one_seed(open); !one_seed.empty())
        answer.reason = fmt::format("{}{}.", upper_case(one_seed.substr(0, 1)), one_seed.substr(1));
    else {
        const bool none = std::ranges::all_of(candidates, [](auto& c) { return c.standing() == Standing::worse; });
        answer.words = "FP32";
        answer.reason = none           ? "No other format holds."
                        : open.empty() ? "No other format is known to hold."
                                       : fmt::format("No other format is known to hold; these runs cannot tell of {}.",
                                                     names_of(open));
        answer.state = none ? ShortAnswer::State::settled : ShortAnswer::State::open;
    }
    return answer;
}

std::vector<std::string> detail::precision_sentences(const std::vector<ComparisonGroup>& groups) {
    std::vector<std::string> sentences;
    if (std::ranges::none_of(groups, [](const ComparisonGroup& g) { return g.reference != nullptr; })) return {};
    for (const Candidate& c : candidates_of(groups))
        sentences.push_back(fmt::format("{} {}. {}.", c.label, words_of(c.standing()), reasons_of(c)));
    return sentences;
}

std::vector<std::string> detail::effect_sentences(const std::vector<ComparisonGroup>& groups) {
    std::vector<std::string> sentences;
    for (const KnownEffect& effect : known_effects()) {
        std::vector<std::string> parts;
        const bool is_known = effect.reported_by.empty();
        bool appears = false;
        for (const ComparisonGroup& group : groups)
            for (const EffectFinding& e : group.effects) {
                if (e.effect != &effect) continue;
                appears = appears || e.appears;
                const double margin = is_known ? group.margin : 0;
                std::string text = fmt::format("{}: {}", group.name,
                                               e.difference ? effect_words(e.appears, e.difference->interval, margin)
                                               : e.appears  ? "it appears"
                                                            : "cannot be told");
                if (e.loses->diverged > e.recovers->diverged)
                    text += fmt::format(", {} diverged of {}", e.loses->diverged, plural(e.loses->seeds, "seed"));
                if (e.difference) text += fmt::format(", {}", difference_text(*e.difference));
                if (!is_known && e.loses->over)
                    text += fmt::format(", of the {:+.2g} by which {} ends above FP32", e.loses->over->interval.mean,
                                        effect.loses);
                parts.push_back(text + gradients_text(e));
            }
        if (parts.empty()) continue;
        sentences.push_back(fmt::format("{} that {}. Final loss of {} above that of {}: {}.",
                                        is_known ? "It is known" : fmt::format("{} reports", effect.reported_by),
                                        effect.claim, effect.loses, effect.recovers, fmt::join(parts, "; ")));
        if (effect.shows == KnownEffect::in_sums && !appears)
            sentences.back() += " Sums of 16,384 products show it: the manual of amp-train has such a step, under "
                                "--accumulate.";
    }
    return sentences;
}

} // namespace amp

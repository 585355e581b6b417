// Whether a row holds: differences to FP32 of runs with the same seed, their intervals, and the margin.
#include <ampscope/sim/findings/detail/seeds.h>

#include <ampscope/sim/analysis/series.h>
#include <ampscope/sim/base/text.h>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

namespace amp {

namespace {

using detail::Seed, detail::Quantity, detail::seeds_of, detail::pairs_of;

// The margin is what FP32 gains in a tenth of its steps, see last_gain(), but at least this share of its final loss.
constexpr double least_share = 0.01;
constexpr std::size_t least_line = 10;  // losses in the last third, or a line through them tells nothing
constexpr std::size_t least_steps = 20; // that two runs must share in their second halves, or one pair tells nothing

// How much the difference of two runs' final losses deviates between seeds, in deviations of their difference from
// step to step: a single seed cannot show it. Calibrated on the 16 runs of the standard comparison (two networks, eight
// seeds, eleven precisions against FP32): there it is 0.18 to 1.03, its root mean square 0.55. One-seed intervals of
// 95 % and of 99.5 % miss the mean of the eight seeds 5 and 0 times of 176, where 9 and 1 are expected; without it, 52
// and 29 times.
// Between all pairs of these precisions 6 of 1,056 intervals of 99.5 % miss it (5 are expected).
constexpr double between_seeds = 0.6;

/// What a Standing is called: in the order of its enumerators.
struct StandingNames {
    std::string_view name, words;
};
constexpr std::array<StandingNames, 6> standing_table = {{{"reference", "is the reference"},
                                                          {"holds", "holds"},
                                                          {"worse", "does not hold"},
                                                          {"unclear", "cannot be told"},
                                                          {"broken", "diverged"},
                                                          {"unknown", "was not compared"}}};

// Who reports what small networks need not show.
constexpr std::string_view nvidia = "NVIDIA (arXiv:2509.25149)", four_over_six = "Four Over Six (arXiv:2512.02010)",
                           quartet2 = "Quartet II (arXiv:2601.22813)";

constexpr KnownEffect effect_table[] = {
    {"FP16 without a loss scaler loses small gradients, and a dynamic one recovers them", "amp-fp16,scaler=none",
     "amp-fp16"},
    {"weights kept in BF16 lose updates, and Kahan's compensation recovers them", "pure-bf16", "pure-bf16-kahan",
     KnownEffect::in_losses},
    {"weights kept in BF16 lose updates, and stochastic rounding recovers them", "pure-bf16", "pure-bf16-stochastic",
     KnownEffect::in_losses},
    {"FP8 under one static scale loses small numbers, and delayed scaling recovers them",
     "fp8-current,scaling-rule=one", "fp8-delayed", KnownEffect::in_losses}, // its first scale is 1, too
    {"FP8 under one static scale loses small numbers, and scales for blocks recover them",
     "fp8-current,scaling-rule=one", "mxfp8"},
    {"sums of FP8 products in Hopper's 14 bits lose, and promotion to FP32 every 128 products recovers it",
     "fp8-current,accumulate=hopper-wgmma-fp8", "fp8-current,accumulate=hopper-wgmma-fp8-promote128",
     KnownEffect::in_sums},
    {"the Hadamard transform makes NVFP4's gradients of weights more exact", "nvfp4-plain",
     "nvfp4-plain,scaling-hadamard=te", KnownEffect::in_gradients, nvidia},
    {"stochastic rounding of gradients, which is without bias, makes NVFP4 train better", "nvfp4-plain",
     "nvfp4-plain,scaling-gradient-rounding=stochastic", KnownEffect::in_losses, nvidia},
    {"scales of 16 x 16 weights, the same in forward and backward, make NVFP4 train better", "nvfp4-plain",
     "nvfp4-plain,scaling-weight-block=16x16", KnownEffect::in_losses, nvidia},
    {"4-over-6 makes NVFP4 more exact", "nvfp4-plain", "nvfp4-plain,scaling-4over6=mae,scaling-e4m3-max=256",
     KnownEffect::in_gradients, four_over_six},
    {"the transform, stochastic rounding and 16 x 16 weights together make NVFP4 train better", "nvfp4-plain", "nvfp4",
     KnownEffect::in_losses, nvidia},
    {"4-over-6 makes TransformerEngine's recipe train better", "nvfp4", "nvfp4,scaling-4over6=mae,scaling-e4m3-max=256",
     KnownEffect::in_losses, four_over_six},
    {"its backward pass trains better than plain NVFP4", "nvfp4-plain", "quartet2", KnownEffect::in_losses, quartet2},
    {"it trains better than TransformerEngine's recipe", "nvfp4", "quartet2", KnownEffect::in_losses, quartet2},
};

std::optional<double> final_loss(const RecordedRun& r) { return r.final_loss(); }
std::optional<double> validation_loss(const RecordedRun& r) { return number_at(r.result, "/validation_loss"); }
std::optional<double> gradient_error(const RecordedRun& r) { return number_at(r.result, "/gradient_error"); }
std::optional<double> accuracy(const RecordedRun& r) { return number_at(r.result, "/accuracy"); }
std::optional<double> error_rate(const RecordedRun& r) {
    const std::optional<double> a = accuracy(r);
    return a ? std::optional(1 - *a) : std::nullopt;
}

/// A quantity that two rows are compared in.
struct Judged {
    Quantity of;
    double margin = 0;
    bool has_steps = false;   ///< whether the log has it for each step
    double least_deviation{}; ///< what runs of other seeds deviate by at least, even if these agree: see rounding_of()
};

/// The deviation that rounding alone gives an accuracy: of n examples it is a multiple of 1/n, so that seeds may agree
/// by chance, and error is distributed evenly between -1/2n and 1/2n. 0 where the number of examples is unknown.
double rounding_of(const ComparisonRow& row) {
    const std::optional<double> examples = row.runs.front()->facts.validation;
    return examples && *examples >= 1 ? 1 / *examples / std::sqrt(12.0) : 0;
}

std::vector<double> values_of(const ComparisonRow& row, const Quantity& of) {
    std::vector<double> values;
    for (const Seed& seed : seeds_of(row))
        if (const std::optional<double> x = seed.mean(of)) values.push_back(*x);
    return values;
}

std::optional<Spread> spread_over(const ComparisonRow& row, const Quantity& of) {
    const std::vector<double> values = values_of(row, of);
    return values.empty() ? std::nullopt : std::optional(spread_of(values));
}

/// What one pair of runs tells of the difference of their final losses over all seeds: its own, give or take the noise
/// of such means along the second half of the steps, where the differences of neighbouring steps are correlated, and
/// give or take what other seeds would add, see between_seeds.
void judge_by_steps(Difference& d, const RecordedRun& run, const RecordedRun& other, double alpha) {
    std::vector<double> differences;
    for (const auto& [step, difference] : step_differences(run, other)) differences.push_back(difference);
    const std::size_t half = differences.size() - differences.size() / 2;
    if (half < least_steps) return;
    const std::span<const double> second = std::span(differences).last(half);
    const double difference = d.interval.mean;
    d.interval = mean_of_last(second, std::min(half, final_losses(differences.size())), alpha, between_seeds);
    d.independent_steps = effective_count(second);
    d.basis = std::isfinite(d.interval.low) ? IntervalBasis::steps : IntervalBasis::none;
    d.interval.low += difference - d.interval.mean; // the two may log other steps, too
    d.interval.high += difference - d.interval.mean;
    d.interval.mean = difference;
}

/// By how much `row` is worse than `other`, judged against a margin; none if one of them does not have the quantity.
/// One pair is judged by its steps if the quantity has any.
std::optional<Difference> difference_of(const ComparisonRow& row, const ComparisonRow& other, const Judged& quantity,
                                        double alpha) {
    const auto& [of, margin, has_steps, least_deviation] = quantity;
    Difference d;
    const auto pairs = pairs_of(row, other);
    std::vector<double> differences;
    for (const auto& [ours, theirs] : pairs) {
        const std::optional<double> x = ours.mean(of), y = theirs.mean(of);
        if (x && y) differences.push_back(*x - *y);
    }
    const std::vector<double> x = values_of(row, of), y = values_of(other, of);
    if (x.empty() || y.empty() || (differences.empty() && !pairs.empty())) return std::nullopt;
    if (differences.size() > 1) {
        d.interval = mean_interval(differences, alpha, std::numbers::sqrt2 * least_deviation);
        d.basis = IntervalBasis::seeds;
    } else if (differences.empty()) {
        d.interval = difference_interval(x, y, alpha, least_deviation);
        d.basis = IntervalBasis::means;
    } else {
        d.interval = mean_interval(differences, alpha);
        if (has_steps) judge_by_steps(d, *row.runs.front(), *other.runs.front(), alpha);
    }
    // Of one seed the widened interval can show that it is worse, not that others would be as good.
    if (d.interval.low > margin) d.standing = Standing::worse;
    else if (d.interval.high < margin && d.interval.count > 1) d.standing = Standing::holds;
    else if (d.interval.count > 1)
        d.seeds_needed = samples_needed(d.interval.mean - margin, d.interval.deviation, alpha, planned_power);
    return d;
}

/// What a run's loss falls by in a tenth of its steps, towards their end: by the straight line through the last third
/// of its finite losses. Where losses are independent the mean of the last tenth, less that of the tenth before, has
/// 2.5 times the deviation. Measured on the eight seeds of the standard comparison's gpt: 0.038 with a deviation of
/// 0.006 between seeds, by those means 0.044 with 0.018. None if the log is too short.
std::optional<double> last_gain(const RecordedRun& run) {
    std::vector<double> losses;
    for (const StepMetrics& m : run.steps)
        if (m.loss && std::isfinite(*m.loss)) losses.push_back(*m.loss);
    const std::size_t third = losses.size() / 3;
    if (third < least_line) return std::nullopt;
    return -slope_of(std::span(losses).last(third)) * static_cast<double>(losses.size()) / 10;
}

void set_margin(ComparisonGroup& group, const ComparisonLimits& limits) {
    const ComparisonRow& fp32 = *group.reference;
    if (limits.loss_margin) {
        group.margin = *limits.loss_margin;
        group.margin_basis = "as asked for (--loss-margin)";
        return;
    }
    const std::optional<Spread> gain = spread_over(fp32, last_gain);
    const double least = least_share * std::abs(fp32.loss->mean);
    if (gain && gain->mean > least) {
        group.margin = gain->mean;
        group.margin_basis = "what FP32 itself gains in a tenth of its steps, by the line through the last third of "
                             "its losses: a run that ends less than that above FP32 is less than a tenth of the "
                             "training behind it";
        return;
    }
    group.margin = least;
    group.margin_basis =
        fmt::format("{} of FP32's final loss; {}", limit_percent(least_share),
                    gain ? fmt::format("FP32 itself gains less in a tenth of its steps, {:.2g}, by the line through "
                                       "the last third of its losses",
                                       gain->mean)
                         : fmt::format("what FP32 itself gains towards the end is not known, as it logs fewer than {} "
                                       "losses",
                                       3 * least_line));
}

/// Whether a run diverged whose reference did not.
bool is_broken(const ComparisonRow& row, const ComparisonRow* reference) {
    if (reference == nullptr) return row.diverged > 0;
    const auto pairs = pairs_of(row, *reference);
    if (pairs.empty()) return row.diverged > 0 && reference->diverged == 0;
    return std::ranges::any_of(pairs, [](const auto& p) { return p.first.diverged() && !p.second.diverged(); });
}

std::int64_t last_step(const ComparisonRow& row) { return row.runs.front()->steps.back().step; }

/// Whether the row trained as long as the reference; else a note says so.
bool is_comparable(const ComparisonRow& row, ComparisonGroup& group) {
    if (!row.loss) return false;
    if (last_step(row) == last_step(*group.reference)) return true;
    group.notes.push_back(fmt::format("{} ends at step {}, FP32 at {}: their final losses are not compared", row.label,
                                      last_step(row), last_step(*group.reference)));
    return false;
}

void find_effects(ComparisonGroup& group, const ComparisonLimits& limits) {
    const auto row_of = [&](std::string_view label) -> const ComparisonRow* {
        const auto found = std::ranges::find(group.rows, label, &ComparisonRow::label);
        return found == group.rows.end() || found->runs.front()->steps.empty() ? nullptr : &*found;
    };
    for (const KnownEffect& effect : effect_table)
        if (const ComparisonRow* loses = row_of(effect.loses), *recovers = row_of(effect.recovers);
            loses != nullptr && recovers != nullptr)
            group.effects.push_back({.effect = &effect, .loses = loses, .recovers = recovers, .difference = {}});
    const auto in_gradients = [](const EffectFinding& e) { return e.effect->shows != KnownEffect::in_losses; };
    const std::ptrdiff_t intervals =
        std::ssize(group.effects) + std::ranges::count_if(group.effects, in_gradients); // all of them hold at once
    const double alpha = limits.alpha / static_cast<double>(std::max<std::ptrdiff_t>(intervals, 1));
    for (EffectFinding& e : group.effects) {
        e.difference = difference_of(*e.loses, *e.recovers, {.of = final_loss, .has_steps = true}, alpha);
        e.appears = is_broken(*e.loses, e.recovers) || (e.difference && e.difference->standing == Standing::worse);
        if (in_gradients(e)) e.gradient_error = difference_of(*e.loses, *e.recovers, {.of = gradient_error}, alpha);
        if (e.effect->shows == KnownEffect::in_sums)
            if (const auto products = number_at(e.loses->runs.front()->result, "/longest_sum");
                products && *products >= 1 && *products < 0x1p53)
                e.longest_sum = static_cast<std::int64_t>(*products);
    }
}

} // namespace

std::string_view name_of(Standing standing) { return standing_table[static_cast<std::size_t>(standing)].name; }

std::string_view words_of(Standing standing) { return standing_table[static_cast<std::size_t>(standing)].words; }

std::string_view name_of(IntervalBasis basis) {
    constexpr std::array<std::string_view, 4> names = {"seeds", "means", "steps", "none"};
    return names[static_cast<std::size_t>(basis)];
}

std::string_view name_of(ShortAnswer::State state) {
    constexpr std::array<std::string_view, 3> names = {"settled", "open", "alarm"};
    return names[static_cast<std::size_t>(state)];
}

std::string_view name_of(KnownEffect::Shows shows) {
    constexpr std::array<std::string_view, 3> names = {"losses", "gradients", "sums"};
    return names[shows];
}

std::span<const KnownEffect> known_effects() { return effect_table; }

Spread spread_of(const std::vector<double>& values) {
    if (values.empty()) return {};
    const MeanInterval of = mean_interval(values, 0.5);
    return {of.mean, of.deviation, of.count};
}

void detail::judge(ComparisonGroup& group, const ComparisonLimits& limits) {
    for (ComparisonRow& row : group.rows) {
        const std::vector<Seed> seeds = seeds_of(row);
        row.seeds = seeds.size();
        row.diverged = static_cast<std::size_t>(std::ranges::count_if(seeds, &Seed::diverged));
        row.loss = spread_over(row, final_loss);
        row.validation = spread_over(row, validation_loss);
        row.accuracy = spread_over(row, accuracy);
    }
    const auto is_fp32 = [](const ComparisonRow& r) { return r.label == "fp32" && r.loss; };
    std::stable_partition(group.rows.begin(), group.rows.end(), is_fp32);
    if (!group.rows.empty() && is_fp32(group.rows.front())) {
        group.reference = &group.rows.front();
        set_margin(group, limits);
    }
    std::vector<ComparisonRow*> compared;
    for (ComparisonRow& row : group.rows) {
        if (is_broken(row, group.reference)) row.standing = Standing::broken;
        if (group.reference == nullptr) continue;
        if (&row == group.reference) row.standing = Standing::reference;
        else if (is_comparable(row, group)) compared.push_back(&row);
    }
    group.comparisons = compared.size();
    for (ComparisonRow* row : compared) {
        const double alpha = limits.alpha / static_cast<double>(group.comparisons);
        const auto against = [&](const Judged& quantity) {
            return difference_of(*row, *group.reference, quantity, alpha);
        };
        row->over = against({.of = final_loss, .margin = group.margin, .has_steps = true});
        row->validation_over = against({.of = validation_loss, .margin = group.margin});
        row->accuracy_lost = against(
            {.of = error_rate, .margin = limits.accuracy_margin, .least_deviation = rounding_of(*group.reference)});
        if (row->standing != Standing::broken && row->over) row->standing = row->over->standing;
    }
    find_effects(group, limits);
}

} // namespace amp

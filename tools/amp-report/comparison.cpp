#include <ampscope/tools/amp-report/comparison.h>

#include <ampscope/formats/spec.h>
#include <ampscope/sim/base/text.h>
#include <ampscope/sim/train/configuration.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>
#include <tuple>

namespace amp::report_tool {

namespace {

using Json = nlohmann::ordered_json;

// A final loss may exceed the reference's by so many deviations between the reference's seeds, and by that share of it.
constexpr double deviations = 2, least_share = 0.01, share_of_one_seed = 0.02;

Json without(Json configuration, std::initializer_list<const char*> keys) {
    if (configuration.is_object())
        for (const char* key : keys) configuration.erase(key);
    return configuration;
}

/// Runs of the same key train the same network on the same data.
std::string group_key(const RecordedRun& run) {
    const Json& c = run.configuration;
    if (run.steps.empty() && c.is_null()) return run.name; // gradients without a run
    return c.is_object() ? c.value("model", Json()).dump() + c.value("data", Json()).dump() : "";
}

std::string group_name(const RecordedRun& run) {
    const std::string model = text_at(run.configuration, "/model/name"),
                      data = text_at(run.configuration, "/data/name");
    if (run.steps.empty() && run.configuration.is_null()) return run.name;
    if (model.empty()) return "runs";
    return data.empty() ? model : model + " on " + data;
}

/// Runs of the same key differ in the seed only.
std::string row_key(const RecordedRun& run) {
    const Json same = without(run.configuration, {"seed", "tool", "version", "schema_version", "recording"});
    return run.configuration.is_object() ? same.dump(-1, ' ', false, Json::error_handler_t::replace) : run.name;
}

/// Of the file of a run's steps; of its gradients if it has none.
std::string fingerprint_of(const RecordedRun& run) {
    std::string all;
    for (const SourceFile& file : run.files)
        if (run.steps.empty() || file.name.ends_with("metrics.jsonl")) all += '\n' + file.sha256;
    return all;
}

int bits_of(const std::string& name) {
    const auto found = std::ranges::find(formats, name, [](const FormatSpec& f) { return std::string_view(f.name); });
    return found == formats.end() ? 0 : found->bits();
}

int operand_bits(const Json& c) {
    if (const std::string recipe = text_at(c, "/precision/scaling/recipe"); !recipe.empty())
        return recipe.find("fp4") != std::string::npos ? 4 : 8;
    if (const std::string cast = text_at(c, "/precision/autocast/format"); !cast.empty()) return bits_of(cast);
    const int stored = bits_of(text_at(c, "/precision/formats/activations"));
    const std::string operands = text_at(c, "/precision/operands");
    return stored == 32 && !operands.empty() ? bits_of(operands) : stored;
}

bool scales_loss(const Json& c) {
    const std::string scaler = text_at(c, "/loss_scaler/name");
    return !scaler.empty() && scaler != "none";
}

std::optional<double> seed_of(const RecordedRun& run) { return number_at(run.configuration, "/seed"); }

/// Between seeds: runs of one seed that differ all the same (on other machines, say) count as their mean. A run that
/// does not tell its seed is taken for one of its own.
template <class Value>
std::optional<Spread> spread_over(const Row& row, const Value& value) {
    std::vector<std::pair<std::optional<double>, std::vector<double>>> seeds;
    for (const RecordedRun* run : row.runs) {
        const std::optional<double> x = value(*run), seed = seed_of(*run);
        if (!x || !std::isfinite(*x)) return std::nullopt;
        auto found = std::ranges::find_if(seeds, [&](const auto& item) { return seed && item.first == seed; });
        if (found == seeds.end()) found = seeds.insert(found, {seed, {}});
        found->second.push_back(*x);
    }
    std::vector<double> values;
    for (const auto& [seed, of_one] : seeds) values.push_back(spread_of(of_one).mean);
    return spread_of(values);
}

void summarize(Row& row) {
    row.loss = spread_over(row, [](const RecordedRun& r) { return r.final_loss(); });
    row.validation = spread_over(row, [](const RecordedRun& r) { return number_at(r.result, "/validation_loss"); });
    row.accuracy = spread_over(row, [](const RecordedRun& r) { return number_at(r.result, "/accuracy"); });
    const RecordedRun& first = *row.runs.front();
    row.bytes_per_parameter = number_at(first.result, "/memory/bytes_per_parameter");
    row.distance = number_at(first.result, "/distance_from_reference");
    row.operand_bits = operand_bits(first.configuration);
    row.scales_loss = scales_loss(first.configuration);
    for (const RecordedRun* run : row.runs) {
        row.skipped += static_cast<double>(run->skipped.size()) / static_cast<double>(row.runs.size());
        row.lost_updates += run->lost_updates;
        const auto part = number_at(run->result, "/roundings/gradients/underflow"),
                   whole = number_at(run->result, "/roundings/gradients/nonzero");
        if (!part || !whole || !(*part >= 0 && *part <= *whole && *whole < 0x1p63)) continue;
        if (!row.underflow) row.underflow.emplace();
        *row.underflow += {static_cast<std::uint64_t>(*part), static_cast<std::uint64_t>(*whole)};
    }
}

/// The mean difference to the reference's runs of the same seeds; without any, of the means.
double excess_of(const Row& row, const Row& reference) {
    double sum = 0;
    int pairs = 0;
    for (const RecordedRun* run : row.runs)
        for (const RecordedRun* other : reference.runs)
            if (seed_of(*run) == seed_of(*other) && other->final_loss()) {
                sum += run->final_loss().value_or(0) - *other->final_loss();
                ++pairs;
            }
    return pairs > 0 ? sum / pairs : row.loss->mean - reference.loss->mean;
}

bool is_broken(const Row& row) {
    return std::ranges::any_of(row.runs, [](const RecordedRun* r) {
        const std::optional<double> loss = r->final_loss();
        return loss && !std::isfinite(*loss);
    });
}

void judge(Group& group) {
    const auto is_fp32 = [](const Row& r) { return r.label == "fp32" && r.loss; };
    std::stable_partition(group.rows.begin(), group.rows.end(), is_fp32);
    const auto reference = std::ranges::find_if(group.rows, is_fp32);
    if (reference != group.rows.end()) {
        group.reference = &*reference;
        const Spread& s = *reference->loss;
        const bool seeds = s.count > 1;
        group.bound = seeds ? std::max(deviations * s.deviation, least_share * std::abs(s.mean))
                            : share_of_one_seed * std::abs(s.mean);
        group.bound_basis =
            seeds
                ? fmt::format("the larger of {:g} deviations between {} seeds of FP32 ({:.3g} each) and {:g} % of its "
                              "final loss",
                              deviations, s.count, s.deviation, 100 * least_share)
                : fmt::format("{:g} % of FP32's final loss: with one seed the spread is not known",
                              100 * share_of_one_seed);
    }
    for (Row& row : group.rows) {
        if (is_broken(row)) row.standing = Standing::broken;
        if (group.reference == nullptr || !row.loss) continue;
        if (row.runs.front()->steps.back().step != group.reference->runs.front()->steps.back().step) {
            group.notes.push_back(fmt::format("{} ends at step {}, FP32 at {}: their final losses are not compared",
                                              row.label, row.runs.front()->steps.back().step,
                                              group.reference->runs.front()->steps.back().step));
            continue;
        }
        row.excess = excess_of(row, *group.reference);
        row.standing = &row == group.reference     ? Standing::reference
                       : row.excess <= group.bound ? Standing::holds
                                                   : Standing::worse;
    }
}

/// The run whose gradients tell most: of FP32's range, not gone wrong, with most elements.
const RecordedRun* evidence_of(const Group& group) {
    const RecordedRun* best = nullptr;
    const auto rank = [](const RecordedRun& r) {
        const MagnitudeHistogram& all = r.magnitudes;
        return std::tuple(all.nonzero() == 0, r.flushed(), r.broken_at().has_value(), r.label != "fp32", ~all.count());
    };
    for (const Row& row : group.rows)
        for (const RecordedRun* run : row.runs)
            if (!run->tensors.empty() && (best == nullptr || rank(*run) < rank(*best))) best = run;
    return best;
}

void note_differences(Group& group) {
    const auto rest = [](const Row& row) {
        return without(row.runs.front()->configuration,
                       {"seed", "tool", "version", "schema_version", "recording", "precision", "loss_scaler"});
    };
    for (const Row& row : group.rows)
        if (const std::string where = difference(rest(group.rows.front()), rest(row)); !where.empty())
            group.notes.push_back(
                fmt::format("{} differs from {} in {} also", row.label, group.rows.front().label, where));
}

bool is_same(const std::optional<double>& a, const std::optional<double>& b) {
    return a == b || (a && b && std::isnan(*a) && std::isnan(*b));
}

bool is_same(const StepMetrics& a, const StepMetrics& b) {
    return a.step == b.step && is_same(a.loss, b.loss) && is_same(a.scale, b.scale) && a.found_inf == b.found_inf &&
           is_same(a.amax_weight, b.amax_weight) && is_same(a.amax_activation, b.amax_activation);
}

/// Whether the log of the second run has every step of the first, and tells the same of each.
bool has_steps_of(const std::vector<StepMetrics>& part, const std::vector<StepMetrics>& whole) {
    auto at = whole.begin();
    return std::ranges::all_of(part, [&](const StepMetrics& step) {
        at = std::ranges::lower_bound(at, whole.end(), step.step, {}, &StepMetrics::step);
        return at != whole.end() && is_same(*at, step);
    });
}

bool have_same_losses(const RecordedRun& a, const RecordedRun& b) {
    return std::ranges::equal(a.steps, b.steps, [](const StepMetrics& x, const StepMetrics& y) {
        return x.step == y.step && is_same(x.loss, y.loss);
    });
}

/// Runs of one precision and seed that came out differently.
void note_seeds(Group& group) {
    for (const Row& row : group.rows)
        for (std::size_t i = 0; i < row.runs.size(); ++i)
            for (std::size_t j = 0; j < i; ++j)
                if (const auto seed = seed_of(*row.runs[i]); seed && seed == seed_of(*row.runs[j])) {
                    group.notes.push_back(fmt::format(
                        "{} and {} have the same seed, {:g}, but not the same {}: they count as one seed, by their "
                        "mean",
                        row.runs[j]->name, row.runs[i]->name, *seed,
                        have_same_losses(*row.runs[i], *row.runs[j]) ? "log of steps" : "losses"));
                    break;
                }
}

/// Runs that their loss scaler ended.
void note_stops(Group& group) {
    for (const Row& row : group.rows)
        for (const RecordedRun* run : row.runs)
            if (const std::string why = text_at(run->result, "/stopped"); !why.empty())
                group.notes.push_back(fmt::format("{} stopped at {}", run->name, why));
}

/// Rows of the same precision that differ in something else are told apart by their paths.
void make_labels_unique(Group& group) {
    for (Row& row : group.rows) {
        const auto same = [&](const Row& r) { return r.runs.front()->label == row.runs.front()->label; };
        if (std::ranges::count_if(group.rows, same) > 1)
            row.label = fmt::format("{} ({})", row.label, row.runs.front()->name);
    }
}

/// What tells whether two runs are one.
struct Identity {
    RecordedRun* run;
    std::string configuration, fingerprint;
    bool has_losses = false, losses_vary = false;      ///< finite ones, of which no two seeds log the same
    std::tuple<std::size_t, bool, std::uint64_t> rank; ///< of runs that are one, the first in this counts

    explicit Identity(RecordedRun& of)
        : run(&of), configuration(of.configuration.is_object() ? row_key(of) : ""), fingerprint(fingerprint_of(of)),
          rank(of.steps.size(), !of.result.is_null(), of.magnitudes.count()) {
        std::optional<double> first;
        for (const StepMetrics& m : run->steps) {
            has_losses = has_losses || m.loss;
            if (!m.loss || !std::isfinite(*m.loss)) continue;
            losses_vary = losses_vary || m.loss != first.value_or(*m.loss);
            first = m.loss;
        }
    }

    /// Whether the other, of no lesser rank, is the same run. Equal files are: a copy proves nothing, whatever seed it
    /// says. Equal steps are, too, where they are no chance: two seeds begin with one loss if the last layer begins at
    /// zero, and may both be NaN ever after. Logs of unknown configurations may begin alike, in few digits.
    [[nodiscard]] bool is_part_of(const Identity& other) const {
        if (configuration != other.configuration) return false;
        if (fingerprint == other.fingerprint) return true;
        const std::optional<double> seed = seed_of(*run);
        const bool one_seed = seed && seed == seed_of(*other.run);
        const bool whole = run->steps.size() == other.run->steps.size();
        return (one_seed ? has_losses : losses_vary) && (whole || !configuration.empty()) &&
               has_steps_of(run->steps, other.run->steps);
    }
};

/// That a run is left out, since it is another one.
std::string repeat_text(const RecordedRun& run, const RecordedRun& kept) {
    if (run.name == kept.name) return run.name + ": is given twice; counted once";
    const auto named = [](const RecordedRun& r) {
        const auto seed = seed_of(r);
        return r.name + (seed ? fmt::format(" (seed {:g})", *seed) : "");
    };
    const std::size_t steps = run.steps.size(), all = kept.steps.size();
    std::string how = ": their steps are the same";
    if (steps == 0) how = ": their gradients are the same, byte for byte";
    else if (steps < all && run.steps.back().step == kept.steps[steps - 1].step)
        how = fmt::format(", {} after step {}", run.result.is_null() ? "cut off" : "ended", run.steps.back().step);
    else if (steps < all) how = fmt::format(", with {} of its {} steps", steps, all);
    return fmt::format("{} is the same run as {}{}; counted once", named(run), named(kept), how);
}

} // namespace

Spread spread_of(const std::vector<double>& values) {
    Spread s{.count = values.size()};
    for (const double x : values) s.mean += x / static_cast<double>(values.size());
    for (const double x : values) s.deviation += (x - s.mean) * (x - s.mean);
    s.deviation = values.size() < 2 ? 0 : std::sqrt(s.deviation / static_cast<double>(values.size() - 1));
    return s;
}

std::vector<std::string> drop_repeats(std::vector<RecordedRun>& runs) {
    std::vector<Identity> all;
    for (RecordedRun& run : runs) all.emplace_back(run);
    std::ranges::stable_sort(all, std::ranges::greater(), &Identity::rank); // so that a beginning finds its whole
    std::vector<const Identity*> kept;
    std::vector<std::string> warnings;
    std::set<const RecordedRun*> repeats;
    for (const Identity& one : all) {
        const auto same = std::ranges::find_if(kept, [&](const Identity* other) { return one.is_part_of(*other); });
        if (same == kept.end()) {
            kept.push_back(&one);
            continue;
        }
        warnings.push_back(repeat_text(*one.run, *(*same)->run));
        (*same)->run->warnings.push_back(warnings.back());
        repeats.insert(one.run);
    }
    std::vector<RecordedRun> rest;
    for (RecordedRun& run : runs)
        if (!repeats.contains(&run)) rest.push_back(std::move(run));
    runs = std::move(rest);
    return warnings;
}

std::vector<Group> compare(const std::vector<RecordedRun>& runs) {
    std::vector<Group> groups;
    std::vector<std::string> group_keys;
    std::vector<std::vector<std::string>> row_keys;
    for (const RecordedRun& run : runs) {
        const std::string key = group_key(run);
        const auto g = static_cast<std::size_t>(std::ranges::find(group_keys, key) - group_keys.begin());
        if (g == groups.size()) {
            groups.emplace_back().name = group_name(run);
            group_keys.push_back(key);
            row_keys.emplace_back();
        }
        const std::string same = row_key(run);
        const auto r = static_cast<std::size_t>(std::ranges::find(row_keys[g], same) - row_keys[g].begin());
        if (r == row_keys[g].size()) {
            groups[g].rows.emplace_back().label = run.label;
            row_keys[g].push_back(same);
        }
        groups[g].rows[r].runs.push_back(&run);
    }
    for (Group& group : groups) {
        std::ranges::for_each(group.rows, summarize);
        make_labels_unique(group);
        judge(group);
        note_differences(group);
        note_seeds(group);
        note_stops(group);
        group.evidence = evidence_of(group);
    }
    return groups;
}

} // namespace amp::report_tool

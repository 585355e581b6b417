#include <ampscope/sim/findings/detail/comparison.h>

#include <ampscope/formats/spec.h>
#include <ampscope/sim/base/text.h>
#include <ampscope/sim/io/failure.h>
#include <ampscope/sim/train/configuration.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <tuple>

namespace amp {

namespace {

using Json = nlohmann::ordered_json;
using detail::configuration_key, detail::is_same, detail::seed_of, detail::training_of;

/// Equal for runs that train the same network on the same data.
std::string group_key(const RecordedRun& run) {
    const Json& c = run.configuration;
    if (run.steps.empty() && c.is_null()) return run.name; // gradients without a run folder
    return c.is_object() ? c.value("model", Json()).dump() + c.value("data", Json()).dump() : "";
}

std::string group_name(const RecordedRun& run) {
    const std::string &model = run.facts.model, &data = run.facts.data;
    if (run.steps.empty() && run.configuration.is_null()) return run.name;
    if (model.empty()) return "runs";
    return data.empty() ? model : model + " on " + data;
}

int bits_of(const std::string& name) {
    const auto found = std::ranges::find(formats, name, [](const FormatSpec& f) { return std::string_view(f.name); });
    return found == formats.end() ? 0 : found->bits();
}

int operand_bits(const RunFacts& run) {
    if (!run.recipe.empty()) return run.recipe.find("fp4") != std::string::npos ? 4 : 8;
    if (!run.autocast.empty()) return bits_of(run.autocast);
    const int stored = bits_of(run.activation_format);
    return stored == 32 && !run.operands.empty() ? bits_of(run.operands) : stored;
}

bool scales_loss(const RunFacts& run) { return !run.loss_scaler.empty() && run.loss_scaler != "none"; }

void summarize(ComparisonRow& row) {
    const RecordedRun& first = *row.runs.front();
    row.bytes_per_parameter = number_at(first.result, "/memory/bytes_per_parameter");
    row.distance = number_at(first.result, "/distance_from_reference");
    row.operand_bits = operand_bits(first.facts);
    row.scales_loss = scales_loss(first.facts);
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

/// The run with the most informative gradients: of FP32's range, not broken, with most elements.
const RecordedRun* evidence_of(const ComparisonGroup& group) {
    const RecordedRun* best = nullptr;
    const auto rank = [](const RecordedRun& r) {
        const MagnitudeHistogram& all = r.magnitudes;
        return std::tuple(all.nonzero() == 0, r.censoring().hides(), r.broken_at().has_value(), r.label != "fp32",
                          ~all.count());
    };
    for (const ComparisonRow& row : group.rows)
        for (const RecordedRun* run : row.runs)
            if (!run->tensors.empty() && (best == nullptr || rank(*run) < rank(*best))) best = run;
    return best;
}

void note_differences(ComparisonGroup& group) {
    const auto rest = [](const ComparisonRow& row) {
        return training_of(*row.runs.front(), {"precision", "loss_scaler"});
    };
    for (const ComparisonRow& row : group.rows)
        if (const std::string where = difference(rest(group.rows.front()), rest(row)); !where.empty())
            group.notes.push_back(
                fmt::format("{} differs from {} in {} also", row.label, group.rows.front().label, where));
}

bool have_same_losses(const RecordedRun& a, const RecordedRun& b) {
    return std::ranges::equal(a.steps, b.steps, [](const StepMetrics& x, const StepMetrics& y) {
        return x.step == y.step && is_same(x.loss, y.loss);
    });
}

/// Notes runs of the same precision and seed with different results.
void note_seeds(ComparisonGroup& group) {
    for (const ComparisonRow& row : group.rows)
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

/// Notes runs that were ended by their loss scaler.
void note_stops(ComparisonGroup& group) {
    for (const ComparisonRow& row : group.rows)
        for (const RecordedRun* run : row.runs)
            if (const std::string why = text_at(run->result, "/stopped"); !why.empty())
                group.notes.push_back(fmt::format("{} stopped at {}", run->name, why));
}

/// Adds paths to the labels of rows with the same precision that differ in something else.
void make_labels_unique(ComparisonGroup& group) {
    for (ComparisonRow& row : group.rows) {
        const auto same = [&](const ComparisonRow& r) { return r.runs.front()->label == row.runs.front()->label; };
        if (std::ranges::count_if(group.rows, same) > 1)
            row.label = fmt::format("{} ({})", row.label, row.runs.front()->name);
    }
}

/// Divides the runs into groups, in order of appearance.
std::vector<ComparisonGroup> groups_of(const std::vector<RecordedRun>& runs, const ComparisonLimits& limits) {
    std::vector<ComparisonGroup> groups;
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
        const std::string same = configuration_key(run);
        const auto r = static_cast<std::size_t>(std::ranges::find(row_keys[g], same) - row_keys[g].begin());
        if (r == row_keys[g].size()) {
            groups[g].rows.emplace_back().label = run.label;
            row_keys[g].push_back(same);
        }
        groups[g].rows[r].runs.push_back(&run);
    }
    for (ComparisonGroup& group : groups) {
        std::ranges::for_each(group.rows, summarize);
        make_labels_unique(group);
        detail::judge(group, limits);
        note_differences(group);
        note_seeds(group);
        note_stops(group);
        group.evidence = evidence_of(group);
    }
    return groups;
}

/// The loss scales of interest for a network: few need one below 2^-4 or above 2^60.
constexpr ScaleRange drawn_scales = {.below = 4, .above = 3, .least = -4, .most = 60};

/// Computes what Adam does to the gradients by which a group is judged.
void ask_adam(ComparisonGroup& group, const ComparisonOptions& options, const Watch& watch) {
    if (group.evidence == nullptr || !may_be_adam(group.evidence->facts)) return;
    AdamOptions asked = standard_adam_options();
    asked.threads = options.threads;
    asked.recorded_scale = group.evidence->recorded_scale;
    try {
        group.adam = adam_findings(group.evidence->path, asked, watch);
        group.adam->name = group.evidence->name;
        std::ranges::copy_if(group.adam->errors, std::back_inserter(group.adam->warnings), [&](const std::string& e) {
            // reported before
            return std::ranges::find(group.evidence->errors, e) == group.evidence->errors.end();
        });
    } catch (const std::exception&) { // other exceptions of a watch end the work
        group.notes.push_back("Adam is left out: " + failure_text());
    }
}

/// Calls body(path) and adds its errors to the others.
template <class Body>
void attempt(const std::filesystem::path& path, std::vector<std::string>& errors, const Body& body) {
    try {
        body(path);
    } catch (const RecordingError& error) {
        errors.insert(errors.end(), error.lines().begin(), error.lines().end());
    } catch (const std::exception&) { // other exceptions of a watch end the work
        errors.push_back(failure_text(path));
    }
}

} // namespace

void compare(ComparisonFindings& findings, const ComparisonOptions& options, const Watch& watch) {
    findings.limits = options.limits;
    for (RecordedRun& run : findings.runs)
        run.scales =
            scale_curves(run.magnitudes, {}, usual_specs, {}, options.recommendation, drawn_scales, run.censoring());
    findings.groups = groups_of(findings.runs, options.limits);
    for (ComparisonGroup& group : findings.groups) {
        detail::find_instabilities(group, options.limits.spikes, options.threads);
        ask_adam(group, options, watch);
    }
    detail::add_verdict(findings, options);
    findings.precisions = detail::precision_sentences(findings.groups);
    findings.effects = detail::effect_sentences(findings.groups);
    findings.alarms = detail::alarms_of(findings.groups, options.limits.spikes);
}

ComparisonFindings comparison_findings(const std::vector<std::filesystem::path>& paths,
                                       const ComparisonOptions& options, const Watch& watch) {
    ComparisonFindings findings;
    const auto read = [&](const std::filesystem::path& run) {
        const std::string name = options.base.empty() ? run : run.lexically_relative(options.base);
        findings.runs.push_back(read_run(run, name,
                                         {.limit = options.recommendation.limit,
                                          .recorded_scale = options.recorded_scale,
                                          .threads = options.threads},
                                         watch));
        const RecordedRun& last = findings.runs.back();
        findings.warnings.insert(findings.warnings.end(), last.warnings.begin(), last.warnings.end());
        findings.errors.insert(findings.errors.end(), last.errors.begin(), last.errors.end());
    };
    for (const std::filesystem::path& path : paths)
        attempt(path, findings.errors, [&](const std::filesystem::path& below) {
            for (const std::filesystem::path& run : find_runs(below, findings.errors))
                attempt(run, findings.errors, read);
        });
    const std::vector<std::string> repeats = detail::drop_repeats(findings.runs);
    findings.warnings.insert(findings.warnings.end(), repeats.begin(), repeats.end());
    compare(findings, options, watch);
    return findings;
}

} // namespace amp

// Finds recorded runs that are one and the same.
#include <ampscope/sim/findings/detail/comparison.h>
#include <ampscope/sim/io/run_layout.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>
#include <tuple>

namespace amp {

using Json = nlohmann::ordered_json;

namespace detail {

Json training_of(const RecordedRun& run, std::initializer_list<const char*> without) {
    Json settings = run.configuration;
    if (!settings.is_object()) return settings;
    for (const char* key : {"seed", "tool", "version", "schema_version", "recording"}) settings.erase(key);
    for (const char* key : without) settings.erase(key);
    return settings;
}

std::string configuration_key(const RecordedRun& run) {
    return run.configuration.is_object() ? training_of(run).dump(-1, ' ', false, Json::error_handler_t::replace)
                                         : run.name;
}

std::optional<double> seed_of(const RecordedRun& run) { return run.facts.seed; }

bool is_same(const std::optional<double>& a, const std::optional<double>& b) {
    return a == b || (a && b && std::isnan(*a) && std::isnan(*b));
}

} // namespace detail

namespace {

using detail::is_same, detail::seed_of, detail::configuration_key;

/// Fingerprint of the file with the run's steps; without one, of its gradients.
std::string fingerprint_of(const RecordedRun& run) {
    std::string all;
    for (const SourceFile& file : run.files)
        if (run.steps.empty() || file.name.ends_with(run_layout::metrics)) all += '\n' + file.sha256;
    return all;
}

bool is_same(const StepMetrics& a, const StepMetrics& b) {
    return a.step == b.step && is_same(a.loss, b.loss) && is_same(a.scale, b.scale) && a.found_inf == b.found_inf &&
           is_same(a.amax_weight, b.amax_weight) && is_same(a.amax_activation, b.amax_activation);
}

/// Whether the log of the second run has every step of the first, with the same values.
bool has_steps_of(const std::vector<StepMetrics>& part, const std::vector<StepMetrics>& whole) {
    auto at = whole.begin();
    return std::ranges::all_of(part, [&](const StepMetrics& step) {
        at = std::ranges::lower_bound(at, whole.end(), step.step, {}, &StepMetrics::step);
        return at != whole.end() && is_same(*at, step);
    });
}

/// What is needed to tell whether two runs are the same.
struct Identity {
    RecordedRun* run;
    std::string configuration, fingerprint;
    bool has_losses = false, losses_vary = false;      ///< has losses; finite ones vary (no two seeds log the same)
    std::tuple<std::size_t, bool, std::uint64_t> rank; ///< among equal runs the one with the largest rank counts

    explicit Identity(RecordedRun& of)
        : run(&of), configuration(of.configuration.is_object() ? configuration_key(of) : ""),
          fingerprint(fingerprint_of(of)), rank(of.steps.size(), !of.result.is_null(), of.magnitudes.count()) {
        std::optional<double> first;
        for (const StepMetrics& m : run->steps) {
            has_losses = has_losses || m.loss;
            if (!m.loss || !std::isfinite(*m.loss)) continue;
            losses_vary = losses_vary || m.loss != first.value_or(*m.loss);
            first = m.loss;
        }
    }

    /// Whether the other run, of no lesser rank, is the same run. It is if their files are equal: a copy proves
    /// nothing, whatever seed it states. It is, too, if their steps are equal and cannot be so by chance: two seeds
    /// begin with the same loss if the last layer begins at zero, and may both be NaN ever after. Logs of unknown
    /// configurations may begin alike, with their few digits.
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

/// The warning that a run was left out because it is the same as another.
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

std::vector<std::string> detail::drop_repeats(std::vector<RecordedRun>& runs) {
    std::vector<Identity> all;
    for (RecordedRun& run : runs) all.emplace_back(run);
    std::ranges::stable_sort(all, std::ranges::greater(), &Identity::rank); // longer runs come first
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

} // namespace amp

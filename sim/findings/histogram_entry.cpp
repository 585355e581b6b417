#include <ampscope/sim/findings/detail/histogram_summary.h>
#include <ampscope/sim/findings/selection.h>

#include <ampscope/sim/base/tensor_names.h>
#include <ampscope/sim/base/text.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace amp {

namespace {

std::string group_name(const HistogramEntry& entry, Grouping by) {
    switch (by) {
    case Grouping::tensor: break;
    case Grouping::layer: return entry.layer;
    case Grouping::pattern: return name_pattern(entry.name, NameNumbers::components);
    case Grouping::step: return entry.step ? "step " + std::to_string(*entry.step) : "no step";
    case Grouping::file: return entry.file;
    case Grouping::kind: return names_of(entry.kinds);
    case Grouping::all: return "all";
    }
    return entry.name;
}

} // namespace

void detail::merge_into(HistogramEntry& sum, const HistogramEntry& other, const HistogramOptions& options) {
    if (sum.tensors == 0) {
        sum.dtype = other.dtype;
        sum.recorded_scale = other.recorded_scale;
        sum.measured = other.measured;
        sum.fits.resize(other.fits.size());
    }
    if (sum.dtype != other.dtype) sum.dtype.clear();
    if (sum.recorded_scale != other.recorded_scale) sum.recorded_scale.reset();
    sum.scale_stated = sum.scale_stated && other.scale_stated;
    sum.tensors += other.tensors;
    sum.kinds |= other.kinds;
    sum.measured = sum.measured && other.measured;
    if (other.fits.size() != sum.fits.size()) sum.fits.clear(); // gradients are among them
    for (std::size_t f = 0; f < sum.fits.size(); ++f) sum.fits[f].merge(other.fits[f]);
    sum.magnitudes.merge(other.magnitudes);
    sum.fine.merge(other.fine);
    sum.censoring.merge(other.censoring);
    for (const auto& [key, counts] : other.own) sum.own[key].merge(counts);
    for (const auto& [key, error] : other.errors) sum.errors[key].merge(error);
    sum.blocks.merge(other.blocks);
    sum.recipes.resize(options.recipes.size());
    for (std::size_t i = 0; i < sum.recipes.size(); ++i) sum.recipes[i].merge(other.recipes[i], options.worst_blocks);
}

namespace {

using detail::merge_into;

std::string_view group_named(const HistogramEntry& tensor) {
    return std::ranges::find_if(kind_groups, [&](const KindGroup& g) { return tensor.kinds.within(g.kinds); })->name;
}

/// Groups the entries, in order of first appearance; the name of a group is its layer, step or file. What is judged
/// apart is never in one group: if there is `several` of that, the name says which.
std::vector<HistogramEntry> grouped_entries(const std::vector<HistogramEntry>& tensors, const HistogramOptions& options,
                                            bool several) {
    const Grouping by = options.by;
    std::vector<HistogramEntry> groups;
    std::map<std::string, std::size_t> index;
    for (const HistogramEntry& tensor : tensors) {
        std::string name = group_name(tensor, by);
        if (several && by != Grouping::kind) name += fmt::format(", {}", group_named(tensor));
        const auto [it, fresh] = index.try_emplace(name, groups.size());
        if (fresh) {
            groups.emplace_back();
            groups.back().name = name;
            groups.back().tensors = 0;
            if (by == Grouping::step) groups.back().step = tensor.step;
            if (by == Grouping::file) groups.back().file = tensor.file;
            if (by == Grouping::layer) groups.back().layer = tensor.layer;
        }
        merge_into(groups[it->second], tensor, options);
    }
    for (HistogramEntry& group : groups) group.shape = {group.magnitudes.histogram.count()};
    return groups;
}

/// All of these kinds as one, with shape {count}.
HistogramEntry total_of(const std::vector<HistogramEntry>& tensors, KindSet kinds, const HistogramOptions& options) {
    HistogramEntry total;
    total.tensors = 0;
    if (tensors.empty()) // nothing could be read: what was to be counted is known to be none
        for (const auto& [format, scale] : wanted_counts(options))
            if (!options.from_histogram(scale)) total.own[{format.name, scale}] = {};
    total.recipes.resize(options.recipes.size());
    for (const HistogramEntry& tensor : tensors)
        if (tensor.kinds.within(kinds)) merge_into(total, tensor, options);
    total.name = "all";
    total.shape = {total.magnitudes.histogram.count()};
    return total;
}

GateResult judge(const Gate& gate, const HistogramEntry& total, const HistogramOptions& options) {
    const MagnitudeHistogram& histogram = total.magnitudes.histogram;
    const CastCounts counts = counts_at(total, format(gate.format), gate.scale, options);
    const auto count = [](std::uint64_t n) { return static_cast<double>(n); };
    GateResult result{gate, 0, 0, false};
    switch (gate.number_class) {
    case NumberClass::underflow: result.part = counts.underflow; break;
    case NumberClass::subnormal: result.part = counts.subnormal; break;
    case NumberClass::normal: result.part = counts.normal; break;
    case NumberClass::overflow: result.part = counts.overflow; break;
    case NumberClass::zero: result.part = count(histogram.zero); break;
    case NumberClass::nan: result.part = count(histogram.nan); break;
    case NumberClass::inf: result.part = count(histogram.inf); break;
    }
    if (gate.denominator == Denominator::all) result.whole = histogram.count();
    if (gate.denominator == Denominator::nonzero) result.whole = histogram.nonzero();
    const double integer = std::floor(result.part);
    result.holds = holds(gate, static_cast<std::uint64_t>(integer), result.whole, result.part - integer);
    return result;
}

std::vector<CastCounts> unscaled_counts(const HistogramEntry& entry, const HistogramOptions& options) {
    std::vector<CastCounts> counts;
    for (const FormatSpec& format : options.formats) counts.push_back(counts_at(entry, format, 1, options));
    return counts;
}

std::vector<FormatFit> fits_of(const HistogramEntry& entry, const HistogramOptions& options) {
    std::vector<FormatFit> fits;
    for (const FormatSpec& format : options.formats)
        fits.push_back(
            fit_of(entry.magnitudes.histogram, entry.fine, format, options.rule(), options.recommendation.limit));
    return fits;
}

/// The kinds that are judged together, each with its total. Without tensors: the first that was asked for.
std::vector<KindFindings> judged_kinds(const std::vector<HistogramEntry>& tensors, const HistogramOptions& options) {
    std::vector<KindFindings> kinds;
    for (const KindGroup& group : kind_groups)
        if (std::ranges::any_of(tensors, [&](const HistogramEntry& t) { return t.kinds.within(group.kinds); }))
            kinds.push_back({&group, total_of(tensors, group.kinds, options), {}, {}});
    if (!kinds.empty()) return kinds;
    const KindSet wanted = options.kinds.value_or(gradient_kinds);
    const auto* const group =
        std::ranges::find_if(kind_groups, [&](const KindGroup& g) { return !(wanted & g.kinds).empty(); });
    kinds.push_back({group == kind_groups.end() ? kind_groups.data() : group, total_of({}, {}, options), {}, {}});
    return kinds;
}

/// Recipes scale in FP32, where doubles may be infinite or zero before any scale is applied.
void warn_outside_fp32(HistogramFindings& findings) {
    const ClassCounts in_fp32 = findings.total.magnitudes.histogram.classify(fp32_format(), 0);
    if (in_fp32.overflow + in_fp32.underflow == 0) return;
    findings.warnings.push_back(
        fmt::format("{} of the numbers are infinite and {} are zero in FP32, in which recipes scale: for recipes they "
                    "count as such",
                    in_fp32.overflow, in_fp32.underflow));
}

} // namespace

std::string HistogramEntry::largest_text() const {
    if (measured) return fmt::format("{:.3g}", magnitudes.max);
    const auto& rows = magnitudes.histogram.rows;
    return rows.empty() ? "0" : "below " + power_of_two(rows.rbegin()->first + 1);
}

std::optional<std::string_view> HistogramOptions::needs_tensors() const {
    if (const FineNeeds needs = fine_needs(); needs.any())
        return needs.directed ? "--rounding" : "a format that ends within a binade";
    if (block != 0) return "--block";
    if (error) return "--error";
    if (!recipes.empty()) return "--recipe";
    const auto has_own = [&](const auto& cast) { return !from_histogram(cast.second); };
    return std::ranges::any_of(wanted_counts(*this), has_own) ? std::optional("a scale that is no power of two")
                                                              : std::nullopt;
}

FineNeeds HistogramOptions::fine_needs() const {
    std::vector<FormatSpec> cast;
    for (const auto& [format, scale] : wanted_counts(*this)) cast.push_back(format);
    return amp::fine_needs(cast, policy.rounding);
}

bool HistogramOptions::from_histogram(double scale) const {
    return policy.rounding != Rounding::stochastic && exact_log2(scale).has_value();
}

bool HistogramOptions::selects(const std::string& name, const std::optional<std::int64_t>& step) const {
    if (steps && (!step || *step < steps->first || *step > steps->second)) return false;
    return matches(tensor, name);
}

ClassCounts classes_at(const HistogramEntry& entry, const FormatSpec& format, int log2_scale,
                       const HistogramOptions& options) {
    return classify(entry.magnitudes.histogram, entry.fine, format, log2_scale, options.rule());
}

Recommendation recommendation_of(const HistogramEntry& entry, const FormatSpec& format,
                                 const HistogramOptions& options) {
    return recommend(entry.magnitudes.histogram, entry.fine, format, options.rule(), options.recommendation,
                     entry.censoring);
}

CastCounts counts_at(const HistogramEntry& entry, const FormatSpec& format, double scale,
                     const HistogramOptions& options) {
    if (!options.from_histogram(scale)) return entry.own.at({format.name, scale});
    const ClassCounts n = classes_at(entry, format, *exact_log2(scale), options);
    const auto count = [](std::uint64_t x) { return static_cast<double>(x); };
    return {count(n.underflow), count(n.subnormal), count(n.normal), count(n.overflow)};
}

bool knows(const HistogramEntry& entry, const FormatSpec& format, double scale, const HistogramOptions& options) {
    return options.from_histogram(scale) || entry.own.contains({format.name, scale});
}

std::vector<std::pair<FormatSpec, double>> wanted_counts(const HistogramOptions& options) {
    std::vector<std::pair<FormatSpec, double>> wanted;
    const auto want = [&](const FormatSpec& format, double scale) {
        if (std::ranges::find(wanted, std::pair(format, scale)) == wanted.end()) wanted.emplace_back(format, scale);
    };
    for (const FormatSpec& f : options.formats) {
        want(f, 1);
        for (const double scale : options.scales) want(f, scale);
    }
    for (const Gate& gate : options.gates) want(format(gate.format), gate.scale);
    return wanted;
}

FormatCounts format_counts(const HistogramEntry& entry, const FormatSpec& format, const HistogramOptions& options) {
    FormatCounts result;
    if (entry.is_gradient()) result.recommendation = recommendation_of(entry, format, options);
    std::vector<double> scales = options.scales;
    scales.push_back(1);
    if (const auto& log2 = result.recommendation.log2_scale) scales.push_back(std::ldexp(1.0, *log2));
    std::ranges::sort(scales);
    scales.erase(std::unique(scales.begin(), scales.end()), scales.end());
    for (const double scale : scales)
        if (knows(entry, format, scale, options))
            result.scales.push_back({scale, counts_at(entry, format, scale, options)});
    return result;
}

bool casts_weight_gradients(const HistogramFindings& findings, const HistogramOptions& options) {
    return std::ranges::any_of(options.recipes, [](const RecipeChoice& choice) { return !choice.role; }) &&
           std::ranges::any_of(findings.tensors,
                               [](const HistogramEntry& t) { return t.kinds.has(TensorKind::weight_gradient); });
}

std::vector<const HistogramEntry*> worst_first(const std::vector<HistogramEntry>& entries, double CastCounts::*part) {
    std::vector<const HistogramEntry*> ranked;
    for (const HistogramEntry& entry : entries)
        if (std::ranges::any_of(entry.unscaled, [&](const CastCounts& counts) { return counts.*part > 0; }))
            ranked.push_back(&entry);
    std::ranges::stable_sort(ranked, std::greater{}, [&](const HistogramEntry* entry) {
        const auto nonzero = static_cast<double>(entry->magnitudes.histogram.nonzero());
        std::vector<double> key;
        for (const CastCounts& counts : entry->unscaled) key.push_back(counts.*part / nonzero);
        key.push_back(nonzero);
        return key;
    });
    return ranked;
}

void detail::summarize(HistogramFindings& findings, const std::vector<std::filesystem::path>& paths,
                       const HistogramOptions& options) {
    for (HistogramEntry& entry : findings.tensors)
        if (!entry.is_gradient()) entry.fits = fits_of(entry, options);
    findings.kinds = judged_kinds(findings.tensors, options);
    const bool several = findings.kinds.size() > 1;
    findings.total = several ? total_of(findings.tensors, every_kind, options) : findings.kinds.front().total;
    if (options.by != Grouping::tensor) findings.groups = grouped_entries(findings.tensors, options, several);
    findings.total.unscaled = unscaled_counts(findings.total, options);
    for (std::vector<HistogramEntry>* const entries : {&findings.tensors, &findings.groups})
        for (HistogramEntry& entry : *entries) entry.unscaled = unscaled_counts(entry, options);
    for (KindFindings& kind : findings.kinds) {
        kind.total.unscaled = unscaled_counts(kind.total, options);
        for (const FormatSpec& format : options.formats)
            kind.formats.push_back(format_counts(kind.total, format, options));
        if (kind.total.is_gradient())
            kind.scales = scale_curves(kind.total.magnitudes.histogram, kind.total.fine, options.formats,
                                       options.rule(), options.recommendation, {}, kind.total.censoring);
        kind.advice = histogram_advice(kind, findings.tensors, options);
    }
    if (findings.shards) return; // the rest is for the whole
    if (!options.recipes.empty()) warn_outside_fp32(findings);
    if (!findings.tensors.empty()) {
        for (const Gate& gate : options.gates) findings.gates.push_back(judge(gate, findings.total, options));
    } else if (findings.errors.empty()) {
        findings.errors.push_back(fmt::format(
            "{}{}: no tensor that {}--tensor and --step select{}", paths.front().string(),
            paths.size() == 1 ? "" : " and " + plural(paths.size() - 1, "other"),
            findings.other_kinds.empty() ? "" : "--kind, ",
            findings.other_kinds.empty() ? ""
                                         : fmt::format("; of other kinds it holds {}: --kind all counts every kind",
                                                       names_of(findings.other_kinds))));
    }
}

} // namespace amp

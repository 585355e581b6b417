#include <ampscope/tools/amp-histogram/collect.h>

#include <ampscope/sim/analysis/cast_count.h>
#include <ampscope/sim/findings/selection.h>
#include <ampscope/sim/io/failure.h>
#include <ampscope/tools/amp-histogram/json.h>
#include <ampscope/tools/chart/terminal.h>
#include <ampscope/tools/output.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

namespace amp::histogram_tool {

namespace {

bool selected(const std::string& name, const std::optional<std::int64_t>& step, const HistogramOptions& options) {
    if (options.steps && (!step || *step < options.steps->first || *step > options.steps->second)) return false;
    return matches(options.tensor, name);
}

Entry describe(const RecordedTensor& tensor, const HistogramOptions& options) {
    Entry entry;
    entry.file = tensor.file.string();
    entry.name = tensor.entry.name;
    entry.layer = tensor.layer;
    entry.step = tensor.step;
    entry.kind = tensor.kind;
    entry.dtype = info(tensor.entry.dtype).name;
    entry.shape = tensor.entry.shape;
    entry.recorded_scale = options.recorded_scale.value_or(tensor.recorded_scale);
    return entry;
}

/// What the options ask of one tensor: one pass for its magnitudes, and one each for what does not follow from them.
void count(Entry& entry, const TensorFile& file, std::size_t tensor, const HistogramOptions& options,
           const Progress& progress) {
    entry.magnitudes = measure_divided(file, tensor, *entry.recorded_scale, options.threads, progress);
    if (is_directed(options.policy.rounding))
        entry.directed =
            measure_directed(file, tensor, *entry.recorded_scale, options.policy.rounding, options.threads);
    std::vector<Cast> own, all;
    for (const auto& [format, scale] : wanted_counts(options)) {
        all.push_back({format, options.policy, scale, *entry.recorded_scale});
        if (!options.from_histogram(scale)) own.push_back(all.back());
    }
    if (!own.empty()) {
        const std::vector<CastCounts> counts = count_casts(file, tensor, own, options.threads);
        for (std::size_t i = 0; i < own.size(); ++i) entry.own[{own[i].format.name, own[i].scale}] = counts[i];
    }
    if (options.error) {
        const std::vector<CastError> errors = measure_errors(file, tensor, all, options.threads);
        for (std::size_t i = 0; i < all.size(); ++i) entry.errors[{all[i].format.name, all[i].scale}] = errors[i];
    }
    if (options.block != 0)
        entry.blocks =
            measure_blocks(file, tensor, options.block, entry.magnitudes.max * *entry.recorded_scale, options.threads);
}

/// Counts the tensors of one file; all of them or, if it turns out broken, none.
void count_file(std::span<const RecordedTensor> tensors, const HistogramOptions& options, const Progress& progress,
                Findings& findings) {
    std::vector<Entry> entries;
    try {
        const auto file = open_tensor_file(tensors.front().file, options.open);
        for (const RecordedTensor& tensor : tensors) {
            entries.push_back(describe(tensor, options));
            count(entries.back(), *file, tensor.index, options, progress);
        }
    } catch (...) {
        findings.errors.push_back(failure_text(tensors.front().file));
        return;
    }
    std::ranges::move(entries, std::back_inserter(findings.tensors));
}

void count_recordings(const HistogramOptions& options, Findings& findings) {
    Recording recording = find_tensors(options.paths, options.open);
    findings.warnings = unneeded_options(options.open, {&recording});
    findings.warnings.insert(findings.warnings.end(), recording.warnings.begin(), recording.warnings.end());
    findings.errors = std::move(recording.errors);
    std::erase_if(recording.tensors, [&](const RecordedTensor& t) { return !selected(t.entry.name, t.step, options); });
    std::uint64_t bytes = 0;
    for (const RecordedTensor& tensor : recording.tensors) bytes += tensor.entry.bytes;
    ProgressBar bar(bytes);
    const std::span<const RecordedTensor> all = recording.tensors;
    for (std::size_t begin = 0; begin < all.size();) {
        std::size_t end = begin + 1;
        while (end < all.size() && all[end].file == all[begin].file) ++end;
        count_file(
            all.subspan(begin, end - begin), options, [&](std::uint64_t n) { bar.add(n); }, findings);
        begin = end;
    }
}

/// A tensor of a report.
struct Reported {
    Entry entry;
    std::size_t report = 0, place = 0; ///< which report, and where in it
};

/// Whether two reports hold the same tensor: the same file, name and step, and the same counts.
bool repeats(const Entry& a, const Entry& b) {
    return a.file == b.file && a.name == b.name && a.step == b.step && a.magnitudes.histogram == b.magnitudes.histogram;
}

/// An order that does not depend on which report is named first: by file, as recordings are read, then by the place in
/// the report, then, for reports of several machines, by all that a report says of the tensor.
bool precedes(const Reported& x, const Reported& y, const HistogramOptions& options) {
    const std::filesystem::path a = x.entry.file, b = y.entry.file;
    if (a != b) return a < b;
    if (x.place != y.place) return x.place < y.place;
    return tensor_json(x.entry, options).dump() < tensor_json(y.entry, options).dump();
}

/// Leaves out what is in several reports. Within one report nothing repeats: two names may differ only in bytes that
/// JSON cannot hold. So what stays of tensors that are alike is as many as the report with most of them has.
void keep_distinct(std::vector<Reported> all, const HistogramOptions& options, Findings& findings,
                   std::vector<std::uint64_t>& repeated) {
    struct Alike {
        std::size_t kept;                          ///< one of them, among the findings
        std::size_t count = 0;                     ///< that stay
        std::map<std::size_t, std::size_t> seen{}; ///< by report
    };
    std::multimap<std::string, Alike> by_name;
    std::ranges::stable_sort(all, [&](const auto& x, const auto& y) { return precedes(x, y, options); });
    for (Reported& r : all) {
        const auto [first, last] = by_name.equal_range(r.entry.name);
        auto alike = std::find_if(
            first, last, [&](const auto& item) { return repeats(findings.tensors[item.second.kept], r.entry); });
        if (alike == last) alike = by_name.emplace(r.entry.name, Alike{findings.tensors.size()});
        if (++alike->second.seen[r.report] <= alike->second.count) {
            ++repeated[r.report];
            continue;
        }
        ++alike->second.count;
        findings.tensors.push_back(std::move(r.entry));
    }
}

void merge_reports(const HistogramOptions& options, Findings& findings) {
    std::vector<std::filesystem::path> paths = options.paths;
    std::ranges::sort(paths);
    std::vector<Reported> all;
    for (std::size_t report = 0; report < paths.size(); ++report) {
        try {
            std::size_t place = 0;
            for (Entry& entry : read_report(paths[report], options)) {
                ++place;
                if (selected(entry.name, entry.step, options)) all.push_back({std::move(entry), report, place});
            }
        } catch (...) {
            findings.errors.push_back(failure_text(paths[report]));
        }
    }
    std::vector<std::uint64_t> repeated(paths.size());
    keep_distinct(std::move(all), options, findings, repeated);
    for (std::size_t report = 0; report < paths.size(); ++report)
        if (repeated[report] > 0)
            findings.warnings.push_back(fmt::format("{}: {} of its tensors are in another report, too; counted once",
                                                    paths[report].string(), repeated[report]));
}

GateResult judge(const Gate& gate, const Entry& total, const HistogramOptions& options) {
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

} // namespace

Findings collect(const HistogramOptions& options) {
    Findings findings;
    if (options.merge) merge_reports(options, findings);
    else count_recordings(options, findings);
    findings.total = total_of(findings.tensors);
    if (options.by != Grouping::tensor) findings.groups = grouped_entries(findings.tensors, options.by);
    if (findings.tensors.empty()) {
        if (findings.errors.empty())
            findings.errors.push_back(
                fmt::format("{}{}: no tensor that --tensor and --step select", options.paths.front().string(),
                            options.paths.size() == 1 ? "" : fmt::format(" and {} others", options.paths.size() - 1)));
        return findings;
    }
    for (const Gate& gate : options.gates) findings.gates.push_back(judge(gate, findings.total, options));
    return findings;
}

} // namespace amp::histogram_tool

// Merges reports of amp-histogram; the result does not depend on their order.
#include <ampscope/sim/findings/detail/histogram_join.h>
#include <ampscope/sim/findings/detail/histogram_summary.h>
#include <ampscope/sim/findings/histogram_report.h>
#include <ampscope/sim/io/failure.h>
#include <ampscope/sim/io/folder.h>

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

namespace amp {

namespace {

/// A tensor, and where it was reported.
struct Reported {
    HistogramEntry entry;
    std::size_t report = 0, place = 0; ///< index of the report, and of the tensor in it
};

/// The path of a file, however a report spells it: one names it from the working directory, another in full.
std::filesystem::path whole_path(const std::string& file) {
    std::error_code none;
    return std::filesystem::absolute(file, none).lexically_normal();
}

/// Whether two reports have the same tensor: the same file, name and step, and the same counts.
bool repeats(const HistogramEntry& a, const HistogramEntry& b) {
    return a.name == b.name && a.step == b.step && a.magnitudes.histogram == b.magnitudes.histogram &&
           (a.file == b.file || whole_path(a.file) == whole_path(b.file));
}

/// Orders tensors independently of the order of the reports: by file, as recordings are read; then by position in the
/// report; then, for reports of several machines, by all that a report says about the tensor.
bool precedes(const Reported& x, const Reported& y, const HistogramOptions& options) {
    const std::filesystem::path a = x.entry.file, b = y.entry.file;
    if (a != b) return a < b;
    if (x.place != y.place) return x.place < y.place;
    return tensor_json(x.entry, options).dump() < tensor_json(y.entry, options).dump();
}

/// Throws FileError if a recipe takes its scales from the steps before and the steps of a tensor are shared out among
/// reports, each of which began without them.
void check_delayed(const std::vector<Reported>& all, const std::vector<std::filesystem::path>& paths,
                   const HistogramOptions& options) {
    const auto delayed =
        std::ranges::find_if(options.recipes, [](const RecipeChoice& choice) { return choice.recipe.delayed(); });
    if (delayed == options.recipes.end()) return;
    std::map<std::pair<std::filesystem::path, std::string>, std::map<std::size_t, std::set<std::int64_t>>> steps;
    for (const auto& [entry, report, place] : all)
        steps[{whole_path(entry.file).parent_path(), entry.name}][report].insert(entry.step.value_or(0));
    for (const auto& [tensor, by_report] : steps)
        for (const auto& [report, of_report] : by_report)
            if (of_report != by_report.begin()->second)
                throw FileError(paths[report],
                                fmt::format("{} takes its scales from the steps before, and other steps of '{}' are in "
                                            "{}: count all steps in one pass",
                                            delayed->text, tensor.second, paths[by_report.begin()->first].string()));
}

/// Removes tensors that are in several reports. Within one report none repeats: two names may differ only in bytes that
/// JSON cannot hold. So of equal tensors as many stay as the report with most of them has.
void keep_distinct(std::vector<Reported> all, const HistogramOptions& options, HistogramFindings& findings,
                   std::vector<std::uint64_t>& repeated) {
    struct Alike {
        std::size_t kept;                          ///< index among the findings of one of them
        std::size_t count = 0;                     ///< number that stay
        std::map<std::size_t, std::size_t> seen{}; ///< number in each report
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

/// Reads the reports. Those of shards become one, of the whole recording, in the place of the first of them.
std::vector<detail::NamedReport> read_reports(const std::vector<ReportSource>& sources, const HistogramOptions& options,
                                              const Progress& progress, HistogramFindings& findings) {
    std::vector<detail::NamedReport> reports;
    std::map<std::pair<std::string, std::uint64_t>, std::vector<detail::NamedReport>> shards;
    for (const ReportSource& source : sources) {
        try {
            detail::NamedReport read{source.name, read_histogram_report(source, options)};
            if (const auto& counted = read.report.shards)
                shards[{counted->recording, counted->of}].push_back(std::move(read));
            else reports.push_back(std::move(read));
        } catch (const std::exception&) { // other exceptions of a watch end the work
            findings.errors.push_back(failure_text(source.name));
        }
        if (progress && !source.text) progress(file_bytes(source.name));
    }
    for (auto& [recording, parts] : shards) {
        const std::filesystem::path first = parts.front().path;
        reports.push_back({first, detail::join_shards(std::move(parts), options, findings.errors)});
        findings.other_kinds |= reports.back().report.other_kinds;
        std::ranges::copy(reports.back().report.warnings, std::back_inserter(findings.warnings));
    }
    std::ranges::stable_sort(reports, {}, &detail::NamedReport::path);
    return reports;
}

} // namespace

HistogramFindings merged_histogram_findings(const std::vector<std::filesystem::path>& reports,
                                            const HistogramOptions& options, const Watch& watch) {
    return merge_histogram_reports({reports.begin(), reports.end()}, reports, options, watch);
}

HistogramFindings merge_histogram_reports(const std::vector<ReportSource>& sources,
                                          const std::vector<std::filesystem::path>& asked,
                                          const HistogramOptions& options, const Watch& watch) {
    HistogramFindings findings;
    std::vector<ReportSource> sorted = sources;
    std::ranges::sort(sorted, {}, &ReportSource::name);
    std::uint64_t bytes = 0;
    for (const ReportSource& source : sorted) bytes += source.text ? 0 : file_bytes(source.name);
    const Progress progress = begin(watch, bytes);
    std::vector<std::filesystem::path> paths;
    std::vector<Reported> all;
    for (detail::NamedReport& named : read_reports(sorted, options, progress, findings)) {
        std::size_t place = 0;
        for (HistogramEntry& entry : named.report.tensors) {
            ++place;
            const bool wanted = entry.kinds.within(options.kinds.value_or(every_kind));
            if (!wanted) findings.other_kinds |= entry.kinds;
            if (wanted && options.selects(entry.name, entry.step))
                all.push_back({std::move(entry), paths.size(), place});
        }
        paths.push_back(std::move(named.path));
    }
    check_delayed(all, paths, options);
    std::vector<std::uint64_t> repeated(paths.size());
    keep_distinct(std::move(all), options, findings, repeated);
    for (std::size_t report = 0; report < paths.size(); ++report)
        if (repeated[report] > 0)
            findings.warnings.push_back(fmt::format("{}: {} of its tensors are in another report, too; counted once",
                                                    paths[report].string(), repeated[report]));
    detail::summarize(findings, asked, options);
    return findings;
}

} // namespace amp

#include <ampscope/sim/findings/histogram.h>

#include <ampscope/sim/analysis/histogram_log.h>
#include <ampscope/sim/findings/detail/histogram_summary.h>
#include <ampscope/sim/findings/selection.h>
#include <ampscope/sim/io/failure.h>
#include <ampscope/sim/io/folder.h>
#include <ampscope/sim/io/json_reader.h>
#include <ampscope/sim/io/text_file.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <numeric>
#include <span>

namespace amp {

namespace {

HistogramEntry describe(const RecordedTensor& tensor, const HistogramOptions& options) {
    HistogramEntry entry;
    entry.file = tensor.file.string();
    entry.name = tensor.entry.name;
    entry.layer = tensor.layer;
    entry.step = tensor.step;
    entry.kinds = {tensor.kind};
    entry.dtype = tensor.entry.stored().name;
    entry.shape = tensor.entry.shape;
    entry.recorded_scale = options.recorded_scale.value_or(tensor.recorded_scale);
    return entry;
}

/// Takes a line of a histograms.jsonl for a tensor. Throws FileError if its loss scale cannot be divided out.
HistogramEntry described(const RecordedMagnitudes& line, const std::filesystem::path& file,
                         const HistogramOptions& options) {
    HistogramEntry entry;
    entry.file = file.string();
    entry.name = line.tensor;
    entry.layer = layer_of(line.tensor);
    entry.step = line.step;
    entry.kinds = {line.kind};
    entry.dtype = line.format;
    entry.shape = {line.magnitudes.count()};
    entry.recorded_scale = options.recorded_scale.value_or(line.scale);
    entry.measured = line.magnitudes.nonzero() == 0; // there are no extremes then, and the sums are 0
    const std::optional<int> log2 = exact_log2(*entry.recorded_scale);
    if (!log2)
        throw FileError(file,
                        fmt::format("step {}, {}: recorded under {}, no power of two, which cannot be divided out "
                                    "of a histogram",
                                    line.step, line.tensor, *entry.recorded_scale));
    entry.magnitudes.histogram = line.magnitudes.scaled(-*log2);
    entry.censoring = line.censoring;
    if (options.recorded_scale && entry.censoring.below_log2) // the line's own is another
        *entry.censoring.below_log2 += std::ilogb(line.scale) - *log2;
    return entry;
}

/// The passes over a tensor: one for its magnitudes, and one each for what does not follow from them.
std::uint64_t passes_without_recipes(const HistogramOptions& options) {
    const auto has_own = [&](const auto& cast) { return !options.from_histogram(cast.second); };
    return std::uint64_t{1} + (is_directed(options.policy.rounding) ? 1 : 0) +
           (std::ranges::any_of(wanted_counts(options), has_own) ? 1 : 0) + (options.error ? 1 : 0) +
           (options.block != 0 ? 1 : 0);
}

/// Counts one tensor.
void count(HistogramEntry& entry, const TensorFile& file, std::size_t tensor, const HistogramOptions& options,
           const Progress& progress) {
    entry.magnitudes = measure_divided(file, tensor, *entry.recorded_scale, options.threads, progress);
    if (is_directed(options.policy.rounding))
        entry.directed =
            measure_directed(file, tensor, *entry.recorded_scale, options.policy.rounding, options.threads, progress);
    std::vector<Cast> own, all;
    for (const auto& [format, scale] : wanted_counts(options)) {
        all.push_back({format, options.policy, scale, *entry.recorded_scale});
        if (!options.from_histogram(scale)) own.push_back(all.back());
    }
    if (!own.empty()) {
        const std::vector<CastCounts> counts = count_casts(file, tensor, own, options.threads, progress);
        for (std::size_t i = 0; i < own.size(); ++i) entry.own[{own[i].format.name, own[i].scale}] = counts[i];
    }
    if (options.error) {
        const std::vector<CastError> errors = measure_errors(file, tensor, all, options.threads, progress);
        for (std::size_t i = 0; i < all.size(); ++i) entry.errors[{all[i].format.name, all[i].scale}] = errors[i];
    }
    if (options.block != 0)
        entry.blocks = measure_blocks(file, tensor, options.block, entry.magnitudes.max * *entry.recorded_scale,
                                      options.threads, progress);
}

/// What is said of the tensors of one file.
struct FileCounts {
    std::vector<HistogramEntry> entries;
    std::vector<std::string> errors;
};

/// Counts the tensors of one file: all of them or, if it turns out to be damaged, none. Of a checkpoint of many files
/// those are left out that lie in a damaged one.
FileCounts count_file(std::span<const RecordedTensor> tensors, std::vector<RecipePass>& recipes,
                      const HistogramOptions& options, const Progress& progress) {
    FileCounts counts;
    try {
        const auto file = open_tensor_file(tensors.front().file, options.open);
        const std::string whole = FileError(file->path(), "").file();
        for (const RecordedTensor& tensor : tensors) {
            try {
                HistogramEntry entry = describe(tensor, options);
                count(entry, *file, tensor.index, options, progress);
                entry.censoring = censoring_of(tensor, entry.magnitudes.histogram, *entry.recorded_scale);
                for (RecipePass& recipe : recipes)
                    entry.recipes.push_back(recipe.measure(
                        *file, tensor, *entry.recorded_scale,
                        {.worst = options.worst_blocks, .blocks = options.all_blocks, .threads = options.threads},
                        progress));
                counts.entries.push_back(std::move(entry));
            } catch (const FileError& error) {
                if (error.file() == whole) throw;
                add_error(counts.errors, error);
            }
        }
    } catch (const std::exception&) { // other exceptions of a watch end the work
        return {{}, {failure_text(tensors.front().file)}};
    }
    return counts;
}

/// Counts the files in the order of their steps, which delayed scaling needs, and lists them in their own.
void count_files(std::span<const RecordedTensor> all, std::vector<RecipePass>& recipes, const HistogramOptions& options,
                 const Progress& progress, HistogramFindings& findings) {
    std::vector<std::span<const RecordedTensor>> files;
    for (std::size_t first = 0, last = 0; first < all.size(); first = last) {
        while (last < all.size() && all[last].file == all[first].file) ++last;
        files.push_back(all.subspan(first, last - first));
    }
    std::vector<std::size_t> order(files.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, {}, [&](std::size_t i) { return files[i].front().step; });
    std::vector<FileCounts> counts(files.size());
    for (const std::size_t i : order) counts[i] = count_file(files[i], recipes, options, progress);
    for (FileCounts& file : counts) {
        std::ranges::move(file.entries, std::back_inserter(findings.tensors));
        std::ranges::move(file.errors, std::back_inserter(findings.errors));
    }
}

/// Counts the lines of a run's histograms.jsonl of the kinds that are wanted of it: all of them or, if one cannot be
/// counted, none.
void count_log(const std::filesystem::path& log, KindSet wanted, KindSet selected, const HistogramOptions& options,
               const Progress& progress, HistogramFindings& findings) {
    constexpr std::size_t most_rows = 4'000'000; // limit for all histograms together: about 1 GB
    std::vector<HistogramEntry> entries;
    std::size_t rows = 0;
    const auto add = [&](const RecordedMagnitudes& line) {
        if (!selected.has(line.kind)) findings.other_kinds |= {line.kind};
        if (!wanted.has(line.kind) || !options.selects(line.tensor, line.step)) return;
        if (const auto option = options.needs_tensors())
            throw FileError(log, fmt::format("{} needs tensors, and this run recorded only their histograms", *option));
        rows += line.magnitudes.rows.size();
        if (rows > most_rows)
            throw FileError(log,
                            fmt::format("more than {} rows of histograms: select by --tensor or --step", most_rows));
        entries.push_back(described(line, log, options));
    };
    try {
        read_histogram_log(log, add, findings.warnings, progress);
    } catch (const std::exception&) { // other exceptions of a watch end the work
        findings.errors.push_back(failure_text(log));
        return;
    }
    std::ranges::move(entries, std::back_inserter(findings.tensors));
}

/// The selected kinds of which a run has only histograms, and no tensor in its files.
KindSet only_logged(const RecordedLog& log, KindSet selected) { return selected.without(log.in_files); }

/// Whether the lines of one file are those with which another begins; the last of them may be incomplete. Throws as
/// TextFile does.
bool is_beginning_of(const std::filesystem::path& part, const std::filesystem::path& whole) {
    TextFile a(part), b(whole);
    for (std::string x, y; a.next_line(x);)
        if (!b.next_line(y) || (a.ended() ? !y.starts_with(x) : x != y)) return false;
    return true;
}

/// Lists the log of a run and those of its copies, perhaps from a time when it was shorter, as one, the longest, in the
/// order of their paths. Single tensors are not compared: small ones of different runs often have equal histograms.
/// What one of the copies has in files is not counted by the log of another.
void merge_copies(std::vector<RecordedLog>& logs, KindSet selected, std::vector<std::string>& warnings) {
    std::ranges::sort(logs, {}, &RecordedLog::file);
    std::ranges::stable_sort(logs, std::greater(), [](const RecordedLog& log) { return file_bytes(log.file); });
    std::vector<RecordedLog> kept;
    for (const RecordedLog& log : logs) {
        const auto is_part = [&](const RecordedLog& other) {
            return taken_if_right([&] { return is_beginning_of(log.file, other.file); }).value_or(false);
        };
        const auto same = std::ranges::find_if(kept, is_part);
        if (same == kept.end()) {
            kept.push_back(log);
            continue;
        }
        if (!only_logged(log, selected).empty() || !only_logged(*same, selected).empty())
            warnings.push_back(fmt::format("{}: its histograms are those of {}; counted once", log.file.string(),
                                           same->file.string()));
        same->in_files |= log.in_files;
    }
    std::ranges::sort(kept, {}, &RecordedLog::file);
    logs = std::move(kept);
}

/// The kind of tensors that neither a file nor their names tell: the one that is asked for, if that is one.
TensorKind unstated_kind(KindSet selected) {
    for (std::size_t i = 0; i < tensor_kind_names.size(); ++i)
        if (const auto kind = static_cast<TensorKind>(i); selected == KindSet{kind}) return kind;
    return TensorKind::weight_gradient;
}

} // namespace

namespace {

/// Recipes scale in FP32, where doubles may be infinite or zero before any scale is applied.
void warn_outside_fp32(HistogramFindings& findings) {
    const ClassCounts in_fp32 = findings.total.magnitudes.histogram.classify(fp32_format, 0);
    if (in_fp32.overflow + in_fp32.underflow == 0) return;
    findings.warnings.push_back(
        fmt::format("{} of the numbers are infinite and {} are zero in FP32, in which recipes scale: for recipes they "
                    "count as such",
                    in_fp32.overflow, in_fp32.underflow));
}

} // namespace

HistogramFindings histogram_findings(const std::vector<std::filesystem::path>& paths, const HistogramOptions& options,
                                     const Watch& watch) {
    HistogramFindings findings;
    const KindSet selected = options.kinds.value_or(gradient_kinds);
    Recording recording = find_tensors(paths, options.open,
                                       {.state = !(selected & KindSet{TensorKind::weight, TensorKind::state}).empty(),
                                        .logs = true,
                                        .unstated = unstated_kind(selected),
                                        .by_name = options.tensor.has_value()});
    findings.warnings = unneeded_options(options.open, {&recording});
    findings.warnings.insert(findings.warnings.end(), recording.warnings.begin(), recording.warnings.end());
    findings.errors = std::move(recording.errors);
    findings.other_kinds = recording.unread;
    std::erase_if(recording.tensors, [&](const RecordedTensor& t) {
        if (!selected.has(t.kind)) findings.other_kinds |= {t.kind};
        return !selected.has(t.kind) || !options.selects(t.entry.name, t.step);
    });
    std::vector<RecipePass> recipes(options.recipes.begin(), options.recipes.end());
    std::uint64_t bytes = 0;
    for (const RecordedTensor& tensor : recording.tensors) {
        std::uint64_t passes = passes_without_recipes(options);
        for (const RecipePass& recipe : recipes) passes += static_cast<std::uint64_t>(recipe.passes(tensor));
        bytes += tensor.entry.bytes * passes;
    }
    merge_copies(recording.logs, selected, findings.warnings);
    std::erase_if(recording.logs, [&](const RecordedLog& log) { return only_logged(log, selected).empty(); });
    for (const RecordedLog& log : recording.logs) bytes += file_bytes(log.file);
    const Progress progress = begin(watch, bytes);
    count_files(recording.tensors, recipes, options, progress, findings);
    for (const RecordedLog& log : recording.logs)
        count_log(log.file, only_logged(log, selected), selected, options, progress, findings);
    if (!recording.logs.empty()) // as a merge of reports orders them
        std::ranges::stable_sort(findings.tensors, {},
                                 [](const HistogramEntry& t) { return std::filesystem::path(t.file); });
    detail::summarize(findings, paths, options);
    if (!options.recipes.empty()) warn_outside_fp32(findings);
    return findings;
}

} // namespace amp

#include <ampscope/sim/findings/detail/histogram_count.h>

#include <ampscope/sim/analysis/histogram_log.h>
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
#include <set>
#include <span>

namespace amp {

namespace {

HistogramEntry describe(const RecordedTensor& tensor) {
    HistogramEntry entry;
    entry.file = tensor.file.string();
    entry.name = tensor.entry.name;
    entry.layer = tensor.layer;
    entry.step = tensor.step;
    entry.kinds = {tensor.kind};
    entry.dtype = tensor.entry.stored().name;
    entry.shape = tensor.entry.shape;
    entry.recorded_scale = tensor.recorded_scale;
    entry.scale_stated = tensor.scale_stated;
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
    return std::uint64_t{1} + (options.fine_needs().any() ? 1 : 0) +
           (std::ranges::any_of(wanted_counts(options), has_own) ? 1 : 0) + (options.error ? 1 : 0) +
           (options.block != 0 ? 1 : 0);
}

/// Counts one tensor.
void count(HistogramEntry& entry, const TensorFile& file, std::size_t tensor, const HistogramOptions& options,
           const Progress& progress) {
    ExactMagnitudes exact = measure_exactly(file, tensor, *entry.recorded_scale, options.threads, progress);
    entry.magnitudes = exact.statistics();
    if (entry.shard && entry.shard->is_part()) {
        entry.shard->absolute = std::move(exact.absolute);
        entry.shard->squares = std::move(exact.squares);
    }
    if (const FineNeeds needs = options.fine_needs(); needs.any())
        entry.fine = measure_fine(file, tensor, *entry.recorded_scale, needs, options.threads, progress);
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

/// The counts of one file's tensors, and those that failed.
struct FileCounts {
    std::vector<HistogramEntry> entries;
    std::vector<FailedCount> failed;
};

/// Counts a part of a tensor, with what merging it with the others takes.
void count_part(HistogramEntry& entry, const TensorFile& file, const RecordedTensor& tensor, const ShardedTensor& part,
                const HistogramOptions& options, const Progress& progress) {
    entry.shard = part;
    if (!part.is_part()) return count(entry, file, tensor.index, options, progress);
    count(entry, TensorRange(file, tensor.index, part.begin, part.end), 0, options, progress);
    entry.shard->backward = tensor.backward;
}

HistogramEntry count_piece(const detail::Piece& piece, const TensorFile& file, detail::Selection& selection,
                           const Progress& progress) {
    const HistogramOptions& options = selection.options;
    const RecordedTensor& tensor = *piece.tensor;
    HistogramEntry entry = describe(tensor);
    if (piece.shard) count_part(entry, file, tensor, *piece.shard, options, progress);
    else count(entry, file, tensor.index, options, progress);
    entry.censoring = censoring_of(tensor, entry.magnitudes.histogram, *entry.recorded_scale);
    for (RecipePass& recipe : selection.recipes)
        entry.recipes.push_back(recipe.measure(
            file, tensor, *entry.recorded_scale,
            {.worst = options.worst_blocks, .blocks = options.all_blocks, .threads = options.threads}, progress));
    return entry;
}

/// Counts the tensors of one file: all of them or, if it turns out to be damaged, none. Of a checkpoint of many files
/// those are left out that lie in a damaged one.
FileCounts count_file(std::span<const detail::Piece> pieces, detail::Selection& selection, const Progress& progress) {
    FileCounts counts;
    const std::filesystem::path& path = pieces.front().tensor->file;
    const std::string whole = FileError(path, "").file();
    ShardedTensor at = pieces.front().shard.value_or(ShardedTensor{});
    try {
        const auto file = open_tensor_file(path, selection.options.open);
        for (const detail::Piece& piece : pieces) {
            at = piece.shard.value_or(ShardedTensor{});
            try {
                counts.entries.push_back(count_piece(piece, *file, selection, progress));
            } catch (const FileError& error) {
                if (error.file() == whole) throw;
                counts.failed.push_back({path.string(), false, at.index, at.begin, error.file(), error.what()});
            }
        }
    } catch (const std::exception&) { // other exceptions of a watch end the work
        return {{}, {{path.string(), true, at.index, at.begin, whole, failure_text(path)}}};
    }
    return counts;
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

namespace detail {

std::vector<std::string> distinct_errors(const std::vector<FailedCount>& failed) {
    std::set<std::string> named;
    std::vector<std::string> errors;
    for (const FailedCount& f : failed)
        if (named.insert(f.damaged).second) errors.push_back(f.error);
    return errors;
}

Selection::Selection(const std::vector<std::filesystem::path>& paths, const HistogramOptions& asked,
                     HistogramFindings& findings)
    : options(asked), kinds(asked.kinds.value_or(gradient_kinds)),
      recording(find_tensors(paths, asked.open,
                             {.state = !(kinds & KindSet{TensorKind::weight, TensorKind::state}).empty(),
                              .logs = true,
                              .unstated = unstated_kind(kinds),
                              .by_name = asked.tensor.has_value(),
                              .recorded_scale = asked.recorded_scale})),
      recipes(asked.recipes.begin(), asked.recipes.end()) {
    findings.warnings = unneeded_options(options.open, {&recording});
    findings.warnings.insert(findings.warnings.end(), recording.warnings.begin(), recording.warnings.end());
    findings.errors = std::move(recording.errors);
    findings.other_kinds = recording.unread;
    std::erase_if(recording.tensors, [&](const RecordedTensor& t) {
        if (!kinds.has(t.kind)) findings.other_kinds |= {t.kind};
        return !kinds.has(t.kind) || !options.selects(t.entry.name, t.step);
    });
    merge_copies(recording.logs, kinds, findings.warnings);
    std::erase_if(recording.logs, [&](const RecordedLog& log) { return only_logged(log, kinds).empty(); });
}

std::uint64_t Selection::bytes(const RecordedTensor& tensor) const {
    std::uint64_t passes = passes_without_recipes(options);
    for (const RecipePass& recipe : recipes) passes += static_cast<std::uint64_t>(recipe.passes(tensor));
    return tensor.entry.bytes * passes;
}

void count_pieces(std::span<const Piece> pieces, Selection& selection, const Progress& progress,
                  HistogramFindings& findings, std::vector<FailedCount>& failed) {
    std::vector<std::span<const Piece>> files;
    for (std::size_t first = 0, last = 0; first < pieces.size(); first = last) {
        while (last < pieces.size() && pieces[last].tensor->file == pieces[first].tensor->file) ++last;
        files.push_back(pieces.subspan(first, last - first));
    }
    std::vector<std::size_t> order(files.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, {}, [&](std::size_t i) { return files[i].front().tensor->step; });
    std::vector<FileCounts> counts(files.size());
    for (const std::size_t i : order) counts[i] = count_file(files[i], selection, progress);
    for (FileCounts& file : counts) {
        std::ranges::move(file.entries, std::back_inserter(findings.tensors));
        for (const std::string& error : distinct_errors(file.failed)) findings.errors.push_back(error);
        std::ranges::move(file.failed, std::back_inserter(failed));
    }
}

void count_log(const RecordedLog& log, const Selection& selection, const Progress& progress,
               HistogramFindings& findings, std::vector<FailedCount>& failed) {
    const HistogramOptions& options = selection.options;
    const KindSet wanted = only_logged(log, selection.kinds);
    constexpr std::size_t most_rows = 4'000'000; // limit for all histograms together: about 1 GB
    std::vector<HistogramEntry> entries;
    std::size_t rows = 0;
    const auto add = [&](const RecordedMagnitudes& line) {
        if (!selection.kinds.has(line.kind)) findings.other_kinds |= {line.kind};
        if (!wanted.has(line.kind) || !options.selects(line.tensor, line.step)) return;
        if (const auto option = options.needs_tensors())
            throw FileError(log.file,
                            fmt::format("{} needs tensors, and this run recorded only their histograms", *option));
        rows += line.magnitudes.rows.size();
        if (rows > most_rows)
            throw FileError(log.file,
                            fmt::format("more than {} rows of histograms: select by --tensor or --step", most_rows));
        entries.push_back(described(line, log.file, options));
    };
    try {
        read_histogram_log(log.file, add, findings.warnings, progress);
    } catch (const std::exception&) { // other exceptions of a watch end the work
        findings.errors.push_back(failure_text(log.file));
        failed.push_back({.file = log.file.string(), .damaged = log.file.string(), .error = findings.errors.back()});
        return;
    }
    std::ranges::move(entries, std::back_inserter(findings.tensors));
}

} // namespace detail

} // namespace amp

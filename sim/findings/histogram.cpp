#include <ampscope/sim/findings/histogram.h>

#include <ampscope/sim/findings/detail/histogram_summary.h>
#include <ampscope/sim/findings/selection.h>
#include <ampscope/sim/io/failure.h>

#include <fmt/format.h>

#include <algorithm>
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
    entry.kind = tensor.kind;
    entry.dtype = info(tensor.entry.dtype).name;
    entry.shape = tensor.entry.shape;
    entry.recorded_scale = options.recorded_scale.value_or(tensor.recorded_scale);
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
    std::string error;
};

/// Counts the tensors of one file: all of them or, if it turns out to be damaged, none.
FileCounts count_file(std::span<const RecordedTensor> tensors, std::vector<RecipePass>& recipes,
                      const HistogramOptions& options, const Progress& progress) {
    FileCounts counts;
    try {
        const auto file = open_tensor_file(tensors.front().file, options.open);
        for (const RecordedTensor& tensor : tensors) {
            HistogramEntry& entry = counts.entries.emplace_back(describe(tensor, options));
            count(entry, *file, tensor.index, options, progress);
            for (RecipePass& recipe : recipes)
                entry.recipes.push_back(recipe.measure(
                    *file, tensor, *entry.recorded_scale,
                    {.worst = options.worst_blocks, .blocks = options.all_blocks, .threads = options.threads},
                    progress));
        }
    } catch (const std::exception&) { // other exceptions of a watch end the work
        return {{}, failure_text(tensors.front().file)};
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
        if (!file.error.empty()) findings.errors.push_back(std::move(file.error));
    }
}

} // namespace

HistogramFindings histogram_findings(const std::vector<std::filesystem::path>& paths, const HistogramOptions& options,
                                     const Watch& watch) {
    HistogramFindings findings;
    Recording recording = find_tensors(paths, options.open);
    findings.warnings = unneeded_options(options.open, {&recording});
    findings.warnings.insert(findings.warnings.end(), recording.warnings.begin(), recording.warnings.end());
    findings.errors = std::move(recording.errors);
    std::erase_if(recording.tensors, [&](const RecordedTensor& t) { return !options.selects(t.entry.name, t.step); });
    std::vector<RecipePass> recipes(options.recipes.begin(), options.recipes.end());
    std::uint64_t bytes = 0;
    for (const RecordedTensor& tensor : recording.tensors) {
        std::uint64_t passes = passes_without_recipes(options);
        for (const RecipePass& recipe : recipes) passes += static_cast<std::uint64_t>(recipe.passes(tensor));
        bytes += tensor.entry.bytes * passes;
    }
    const Progress progress = begin(watch, bytes);
    count_files(recording.tensors, recipes, options, progress, findings);
    detail::summarize(findings, paths, options);
    return findings;
}

} // namespace amp

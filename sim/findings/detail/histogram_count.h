// Counting what options select of a recording: all of it in one process, or shards of it.
#pragma once

#include <ampscope/sim/findings/histogram.h>
#include <ampscope/sim/findings/histogram_recipe.h>

namespace amp::detail {

/// What the options select of a recording, and the recipes to try on it.
struct Selection {
    Selection(const std::vector<std::filesystem::path>& paths, const HistogramOptions& options,
              HistogramFindings& findings);

    /// The bytes that are read to count a tensor, in all passes.
    [[nodiscard]] std::uint64_t bytes(const RecordedTensor& tensor) const;

    const HistogramOptions& options;
    KindSet kinds;
    Recording recording; ///< its errors and warnings are the findings'
    std::vector<RecipePass> recipes;
};

/// The errors, of which each damaged file has one: in it every tensor may be an error.
std::vector<std::string> distinct_errors(const std::vector<FailedCount>& failed);

/// A tensor to count or, for shards, a part of it.
struct Piece {
    const RecordedTensor* tensor;
    std::optional<ShardedTensor> shard{};
};

/// Counts pieces, those of a file one after another, and adds them to the findings in their order. Files are read in
/// the order of their steps, which delayed scaling needs. Of a file that turns out to be damaged nothing is counted,
/// and of a checkpoint of many files no tensor that lies in a damaged one; the error is added to the findings, and to
/// `failed`.
void count_pieces(std::span<const Piece> pieces, Selection& selection, const Progress& progress,
                  HistogramFindings& findings, std::vector<FailedCount>& failed);

/// Counts the lines of a run's histograms.jsonl: all that are selected or, if one cannot be counted, none.
void count_log(const RecordedLog& log, const Selection& selection, const Progress& progress,
               HistogramFindings& findings, std::vector<FailedCount>& failed);

} // namespace amp::detail

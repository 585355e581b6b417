// Counting shared out among processes: a recording is cut into shards of equal bytes, each process counts some of them
// and writes a report, and merged_histogram_findings() makes of all reports what one process would have found.
#pragma once

#include <ampscope/sim/findings/histogram.h>

#include <functional>

namespace amp {

/// Which shards a process counts.
struct ShardSource {
    /// How many shards there are, given the bytes to count and the recording's fingerprint. All processes must say the
    /// same.
    std::function<std::uint64_t(std::uint64_t bytes, const std::string& recording)> of;
    /// The next shard to count, from 1; none: there are no more.
    std::function<std::optional<std::uint64_t>()> next;
    /// The only shard that this process counts; none: it is one of several that share out all of them, whose progress
    /// counts as one.
    std::optional<std::uint64_t> only{};
};

/// Shard `number` of `of` alone, from 1.
ShardSource single_shard(std::uint64_t number, std::uint64_t of);

/// Counts the shards that the source names as histogram_findings() counts a whole recording. Large tensors are split
/// between blocks of sum_block elements, unless an option needs whole tensors (block, error, recipes and stochastic
/// rounding) or they can only be read from their beginning. Tensors of the findings are in the order of the recording;
/// HistogramEntry::shard says which of them are incomplete, and HistogramFindings::shards what was counted. Throws
/// std::invalid_argument if a recipe takes its scales from the steps before.
HistogramFindings histogram_shards(const std::vector<std::filesystem::path>& paths, const HistogramOptions& options,
                                   const ShardSource& source, const Watch& watch = {});

} // namespace amp

// What amp-histogram finds: by itself, of one shard, of reports, or together with processes that mpirun has started.
#pragma once

#include <ampscope/sim/base/ranks.h>
#include <ampscope/tools/amp-histogram/options.h>

namespace amp::histogram_tool {

/// What the options ask for, in one process.
HistogramFindings find(const HistogramToolOptions& options, const Watch& watch);

/// What one process would find, counted by all ranks: each takes the next of many shards as it finishes one, and rank 0
/// merges their reports. Empty on the other ranks, which have nothing to print but their errors.
std::optional<HistogramFindings> find_with_ranks(const HistogramToolOptions& options, Ranks& ranks, const Watch& watch);

} // namespace amp::histogram_tool

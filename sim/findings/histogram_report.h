// JSON reports of amp-histogram: what they say of tensors, and reading them again to merge them.
#pragma once

#include <ampscope/sim/findings/histogram.h>

#include <nlohmann/json.hpp>

namespace amp {

inline constexpr int histogram_report_version = 1; ///< the reports' "schema_version"

/// What a report says of every entry, be it a tensor, a group or the total: adds counts, extremes, sums, its exact
/// histogram and the counts of each format to `json`.
void add_counts(nlohmann::ordered_json& json, const HistogramEntry& entry, const HistogramOptions& options);

/// All that a report says of a tensor.
nlohmann::ordered_json tensor_json(const HistogramEntry& entry, const HistogramOptions& options);

/// What became of a gate.
nlohmann::ordered_json gate_json(const GateResult& result);

/// What decides the counts: reports are merged only where they were counted alike.
nlohmann::ordered_json counting_json(const HistogramOptions& options);

/// The tensors of a report that was written with the same counting options; HistogramEntry::unscaled is not filled in.
/// Throws FileError for anything else, since reports may come from anywhere.
std::vector<HistogramEntry> read_histogram_report(const std::filesystem::path& path, const HistogramOptions& options);

} // namespace amp

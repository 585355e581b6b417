// JSON reports of amp-histogram: the parts about tensors, and reading them for merging.
#pragma once

#include <ampscope/sim/findings/histogram.h>

#include <nlohmann/json.hpp>

namespace amp {

/// The reports' "schema_version". In version 1 the kinds "weight" and "activation" meant gradients of these.
inline constexpr int histogram_report_version = 2;

/// Adds to `json` what a report says about any entry (a tensor, a group or the total): counts, extremes, sums, its
/// exact histogram and the counts of each format.
void add_counts(nlohmann::ordered_json& json, const HistogramEntry& entry, const HistogramOptions& options);

/// All that a report says about a tensor.
nlohmann::ordered_json tensor_json(const HistogramEntry& entry, const HistogramOptions& options);

/// The outcome of a gate.
nlohmann::ordered_json gate_json(const GateResult& result);

/// The options that determine the counts: only reports that agree in them are merged.
nlohmann::ordered_json counting_json(const HistogramOptions& options);

/// Which shards were counted, and the warnings about them.
nlohmann::ordered_json shards_json(const HistogramFindings& findings);

/// What a report says that merging takes.
struct HistogramReport {
    std::vector<HistogramEntry> tensors;   ///< without HistogramEntry::unscaled
    std::optional<CountedShards> shards{}; ///< none: it is of a whole recording
    std::vector<std::string> errors{};     ///< of shards: what could not be read
    std::vector<std::string> warnings{};   ///< of shards
    KindSet other_kinds = {};              ///< of shards: kinds of tensors that were not counted
};

/// Reads a report written with the same counting options. Throws FileError for any other content, since reports may
/// come from anywhere.
HistogramReport read_histogram_report(const ReportSource& source, const HistogramOptions& options);

} // namespace amp

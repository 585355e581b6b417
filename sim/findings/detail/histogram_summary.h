// Draws conclusions from the histograms of single tensors.
#pragma once

#include <ampscope/sim/findings/histogram.h>

namespace amp::detail {

/// Computes total, groups, counts, advice and gates from the tensors. Without tensors gates are not judged, and if
/// there is no error yet, one is added: that the options select nothing from these paths. Neither is done for shards.
void summarize(HistogramFindings& findings, const std::vector<std::filesystem::path>& paths,
               const HistogramOptions& options);

/// Adds `other` to `sum`: histograms, extremes, own counts. A dtype or recorded scale that differs becomes unknown.
void merge_into(HistogramEntry& sum, const HistogramEntry& other, const HistogramOptions& options);

/// Advice for each format, before it what is NaN or infinite among gradients; `tensors` may be of other kinds, too.
std::vector<std::string> histogram_advice(const KindFindings& kind, const std::vector<HistogramEntry>& tensors,
                                          const HistogramOptions& options);

} // namespace amp::detail

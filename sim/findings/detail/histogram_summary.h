// What follows from the histograms of single tensors.
#pragma once

#include <ampscope/sim/findings/histogram.h>

namespace amp::detail {

/// Fills in total, groups, counts, advice and gates from the tensors. Where there are none, gates are not judged, and
/// it is an error, unless there is one already, that the options selected nothing of these paths.
void summarize(HistogramFindings& findings, const std::vector<std::filesystem::path>& paths,
               const HistogramOptions& options);

/// What to do about each format, in one or two sentences.
std::vector<std::string> histogram_advice(const HistogramFindings& findings, const HistogramOptions& options);

} // namespace amp::detail

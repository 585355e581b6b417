// The reports for programs: JSON and CSV.
#pragma once

#include <ampscope/tools/amp-histogram/options.h>
#include <ampscope/tools/output.h>

#include <string>
#include <utility>
#include <vector>

namespace amp::histogram_tool {

/// The definitions that are printed beside the numbers.
std::vector<std::pair<std::string, std::string>> definitions_of(const HistogramFindings& findings,
                                                                const HistogramOptions& options);

/// Schema version 2: in version 1 the kinds "weight" and "activation" meant gradients. No time, no host: the same
/// findings give the same bytes.
void write_json(const HistogramFindings& findings, const HistogramOptions& options, const TextSink& sink);

/// Long form, RFC 4180: file, tensor, step, kind, format, scale, class, count. Rows of nan, inf and zero have neither
/// format nor scale; they and the four classes of one format at one scale sum to the elements of the tensor. A recipe
/// stands in place of a format, with the scale "blocks" and the classes underflow, saturated and lost.
void write_csv(const HistogramFindings& findings, const HistogramOptions& options, const TextSink& sink);

} // namespace amp::histogram_tool

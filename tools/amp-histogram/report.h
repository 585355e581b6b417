// The reports that people read: the terminal and the pictures.
#pragma once

#include <ampscope/tools/amp-histogram/document.h>
#include <ampscope/tools/chart/chart.h>

namespace amp::histogram_tool {

/// At most 80 columns; colour by escape sequences if `color`.
std::string terminal_report(const Findings& findings, const HistogramOptions& options, bool color);

/// The pictures: magnitudes, and what becomes of them at each loss scale.
MagnitudeFigure magnitude_figure(const Findings& findings, const HistogramOptions& options);
RateFigure rate_figure(const Findings& findings, const HistogramOptions& options);
/// The entries by the share that becomes zero or overflows in the first format, among equals in the next, then by size.
std::vector<const Entry*> worst_first(const std::vector<Entry>& entries, const HistogramOptions& options);

/// One self-contained page, with files and their hashes.
std::string html_report(const Findings& findings, const HistogramOptions& options);

std::string svg_report(const Findings& findings, const HistogramOptions& options);

/// What to do about one format, in one or two sentences.
std::string advice(const Findings& findings, const FormatSpec& format, const HistogramOptions& options);

} // namespace amp::histogram_tool

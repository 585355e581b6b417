// The reports that people read: the terminal and the pictures.
#pragma once

#include <ampscope/tools/amp-histogram/document.h>
#include <ampscope/tools/chart/chart.h>

namespace amp::histogram_tool {

/// At most 80 columns; colour by escape sequences if `color`.
std::string terminal_report(const HistogramFindings& findings, const HistogramToolOptions& options, bool color);

/// The pictures: magnitudes, and what becomes of them at each loss scale.
MagnitudeFigure magnitude_figure(const HistogramFindings& findings, const HistogramOptions& options);
RateFigure rate_figure(const HistogramFindings& findings, const HistogramOptions& options);

/// One self-contained page, with files and their hashes.
std::string html_report(const HistogramFindings& findings, const HistogramToolOptions& options);

std::string svg_report(const HistogramFindings& findings, const HistogramOptions& options);

} // namespace amp::histogram_tool

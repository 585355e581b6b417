// The reports that people read: the terminal and the pictures.
#pragma once

#include <ampscope/tools/amp-histogram/data_report.h>
#include <ampscope/tools/chart/chart.h>
#include <ampscope/tools/document/document.h>

namespace amp::histogram_tool {

/// What the terminal and the page say.
Document document_of(const HistogramFindings& findings, const HistogramToolOptions& options);

/// The pictures: magnitudes, and for gradients what becomes of them at each loss scale.
MagnitudeFigure magnitude_figure(const KindFindings& kind, const HistogramOptions& options);

/// The page: also what went wrong, definitions, and the files with their hashes.
std::string html_report(const HistogramFindings& findings, const HistogramToolOptions& options);

std::string svg_report(const HistogramFindings& findings, const HistogramOptions& options);

} // namespace amp::histogram_tool

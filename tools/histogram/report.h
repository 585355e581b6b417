// The reports that people read: the terminal and the pictures.
#pragma once

#include <ampscope/tools/chart/chart.h>
#include <ampscope/tools/histogram/document.h>

namespace amp {

/// At most 80 columns; colour by escape sequences if `color`.
std::string terminal_report(const Findings& findings, const HistogramOptions& options, bool color);

std::string svg_report(const Findings& findings, const HistogramOptions& options);

/// What to do about one format, in one or two sentences.
std::string advice(const Findings& findings, const FormatSpec& format, const HistogramOptions& options);

} // namespace amp

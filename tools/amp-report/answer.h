// amp-report's runs: those that are named, or those of the standard comparison, which it trains.
#pragma once

#include <ampscope/tools/amp-report/report.h>
#include <ampscope/tools/output.h>

namespace amp::report_tool {

/// Reads the runs, or trains them where no path is named, and compares them. Warnings and errors are told as they come.
Report ask(const ReportOptions& options, const Tell& tell, const Watch& watch);

} // namespace amp::report_tool

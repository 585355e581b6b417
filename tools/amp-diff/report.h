// What amp-diff says.
#pragma once

#include <ampscope/tools/amp-diff/options.h>
#include <ampscope/tools/document/document.h>

namespace amp::diff_tool {

/// What the terminal and the page say.
Document document_of(const DiffFindings& findings, const DiffToolOptions& options);

/// The page: also what went wrong, and the files with their hashes.
std::string html_report(const DiffFindings& findings, const DiffToolOptions& options);

/// Schema version 1. No time, no host: the same inputs give the same bytes.
std::string json_report(const DiffFindings& findings, const DiffToolOptions& options);

/// Relative distance over the steps, and distances in ulps of the tensors that differ most.
std::string svg_report(const DiffFindings& findings, const DiffToolOptions& options);

} // namespace amp::diff_tool

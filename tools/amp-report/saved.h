// Reports that something else has measured and saved as JSON, of which amp-report makes a page.
#pragma once

#include <ampscope/tools/amp-report/options.h>
#include <ampscope/tools/document/document.h>

#include <functional>

namespace amp::report_tool {

struct SavedReport {
    Document document;
    std::function<std::string()> json;
};

/// The only input, if it is such a report: one step of a model, from ampscope.torch.compare, or training against
/// serving, from amp-train --against. None if there is none among the inputs. Throws UsageError where there is one
/// beside other inputs, and FileError for other files in JSON.
std::optional<SavedReport> saved_report_among(const ReportOptions& options);

} // namespace amp::report_tool

// What amp-adam says.
#pragma once

#include <ampscope/tools/amp-adam/options.h>
#include <ampscope/tools/document/document.h>
#include <ampscope/tools/output.h>

namespace amp::adam_tool {

/// What the terminal and the page say: a section for each input.
Document document_of(const std::vector<AdamFindings>& inputs, const AdamToolOptions& options);

/// Schema version 1. No time, no host: the same inputs give the same bytes.
void write_json(const std::vector<AdamFindings>& inputs, const std::vector<std::string>& errors, const TextSink& sink);

/// The pictures of one input: sqrt(v_hat) / eps by state format, and the sweep of eps.
BarFigure ratio_figure(const AdamFindings& findings);
LineFigure sweep_figure(const AdamFindings& findings);

/// sqrt(v_hat) / eps by state format, and what each eps of the sweep does.
std::string svg_report(const std::vector<AdamFindings>& inputs);

} // namespace amp::adam_tool

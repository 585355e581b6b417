// What amp-adam says.
#pragma once

#include <ampscope/tools/amp-adam/answer.h>
#include <ampscope/tools/chart/adam_figures.h>
#include <ampscope/tools/document/document.h>

namespace amp::adam_tool {

/// What the terminal and the page say: a section for each input.
Document document_of(const std::vector<AdamFindings>& inputs, const AdamToolOptions& options);

/// Schema version 1. No time, no host: the same inputs give the same bytes.
void write_json(const std::vector<AdamFindings>& inputs, const std::vector<std::string>& errors, const TextSink& sink);

/// The page: also what went wrong, and the files with their hashes.
std::string html_report(const AdamAnswer& answer, const AdamToolOptions& options);

/// sqrt(v_hat) / eps by state format, and what each eps of the sweep does.
std::string svg_report(const std::vector<AdamFindings>& inputs);

} // namespace amp::adam_tool

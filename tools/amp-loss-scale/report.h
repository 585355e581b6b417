// What amp-loss-scale says: tables, advice, JSON, the picture of scales over steps.
#pragma once

#include <ampscope/tools/amp-loss-scale/answer.h>
#include <ampscope/tools/document/document.h>

namespace amp::loss_scale_tool {

/// What the terminal and the page say: a section for each run.
Document document_of(const std::vector<LossScaleFindings>& runs, const LossScaleToolOptions& options);

/// The page: also what went wrong, and the files with their hashes.
std::string html_report(const LossScaleAnswer& answer, const LossScaleToolOptions& options);

/// Schema version 1. No time, no host: the same input gives the same bytes.
std::string json_report(const std::vector<LossScaleFindings>& runs, const std::vector<std::string>& errors,
                        const LossScaleToolOptions& options);

std::string svg_report(const std::vector<LossScaleFindings>& runs);

} // namespace amp::loss_scale_tool

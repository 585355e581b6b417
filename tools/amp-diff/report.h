// What amp-diff says.
#pragma once

#include <ampscope/tools/amp-diff/collect.h>

namespace amp::diff_tool {

struct DiffGateResult {
    DiffGate gate;
    double value = 0;
    bool holds = false;
};
std::vector<DiffGateResult> judge(const DiffFindings& findings, const DiffOptions& options);

std::string terminal_report(const DiffFindings& findings, const DiffOptions& options, bool color);

/// Schema version 1. No time, no host: the same inputs give the same bytes.
std::string json_report(const DiffFindings& findings, const DiffOptions& options);

/// Relative distance over the steps, and distances in ulps of the tensors that differ most.
std::string svg_report(const DiffFindings& findings, const DiffOptions& options);

} // namespace amp::diff_tool

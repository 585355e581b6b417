// A replay in words: a table for terminals, JSON, and the Markdown report.
#pragma once

#include <ampscope/tools/amp-crosscheck/replay.h>

#include <string>

namespace amp::crosscheck_tool {

/// What ran: "NVIDIA H100 (compute capability 9.0)", or that it was the host and nothing is measured on hardware.
std::string subject(const CudaDevice& device);

std::string replay_table(const Replay& replay, bool color);
std::string replay_json(const Replay& replay, const std::string& command);
std::string replay_markdown(const Replay& replay, const std::string& command);

} // namespace amp::crosscheck_tool

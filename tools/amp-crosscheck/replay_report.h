// A replay in words: for terminals, as JSON and as a Markdown report.
#pragma once

#include <ampscope/tools/amp-crosscheck/replay.h>
#include <ampscope/tools/document/document.h>

#include <string>

namespace amp::crosscheck_tool {

/// What ran: "NVIDIA H100 (compute capability 9.0)", or that it was the host and nothing is measured on hardware.
std::string subject(const CudaDevice& device);

/// What the terminal and the Markdown report say.
Document document_of(const Replay& replay, const std::string& command);
std::string replay_json(const Replay& replay, const std::string& command);

} // namespace amp::crosscheck_tool

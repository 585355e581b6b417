// The result of a device check: for terminals, as JSON and as a Markdown report.
#pragma once

#include <ampscope/tools/amp-crosscheck/device_check.h>
#include <ampscope/tools/document/document.h>

#include <filesystem>
#include <string>
#include <vector>

namespace amp::crosscheck_tool {

/// What ran: "NVIDIA H100 (compute capability 9.0)", or that it was the host and nothing is measured on hardware.
std::string subject(const CudaDevice& device);

/// What the terminal and the Markdown report say.
Document document_of(const DeviceCheck& check, const std::string& command);
std::string check_json(const DeviceCheck& check, const std::string& command);

/// The rows without mismatches of an earlier report, written by check_json of this same program, if it compared the
/// same: none if there is no file. Throws FileError.
std::vector<CheckRow> agreeing_rows(const std::filesystem::path& file, const CheckOptions& options);

} // namespace amp::crosscheck_tool

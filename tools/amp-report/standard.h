// The standard comparison of amp-report: two networks in seven precisions with three seeds each.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace amp::report_tool {

/// Trains the runs and records them in `folder`, in a folder for each network and seed. Returns the commands of
/// amp-train that do the same from that folder. `progress` is called with the number of steps done and of all steps.
/// Throws FileError.
std::vector<std::string>
train_standard_comparison(const std::filesystem::path& folder, int threads,
                          const std::function<void(std::int64_t done, std::int64_t of)>& progress);

} // namespace amp::report_tool

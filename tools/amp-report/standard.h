// The comparison that amp-report makes of itself: two networks in seven precisions, three seeds each.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace amp::report_tool {

/// Trains its runs and records them in `folder`, a folder for each network and seed. Returns the commands of amp-train
/// that do the same from that folder. `progress` is told of steps done, of how many. Throws FileError.
std::vector<std::string>
train_standard_comparison(const std::filesystem::path& folder, int threads,
                          const std::function<void(std::int64_t done, std::int64_t of)>& progress);

} // namespace amp::report_tool

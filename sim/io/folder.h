// The contents of a folder and all folders below it, in an order that does not depend on the file system.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace amp {

/// Calls visit(path, is_folder) for everything below `folder`, sorted by path; goes down into a folder if that returns
/// true. Links to folders are not followed, so that there are no loops. For a folder that cannot be listed a line that
/// names it is added to `errors`, and the walk goes on.
void walk_folder(const std::filesystem::path& folder,
                 const std::function<bool(const std::filesystem::path& path, bool is_folder)>& visit,
                 std::vector<std::string>& errors);

/// The size of a file in bytes, for progress: 0 if it is no file or cannot be examined.
std::uint64_t file_bytes(const std::filesystem::path& file);

} // namespace amp

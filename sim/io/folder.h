// What is in a folder and below it, in an order that does not depend on the file system.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace amp {

/// Calls visit(path, is_folder) for everything below `folder`, sorted by path; what is below a folder is visited where
/// that returns true. Links to folders are not followed, so that no loop is possible. A folder that cannot be listed
/// adds a line to `errors`, which names it; the rest is visited all the same.
void walk_folder(const std::filesystem::path& folder,
                 const std::function<bool(const std::filesystem::path& path, bool is_folder)>& visit,
                 std::vector<std::string>& errors);

} // namespace amp

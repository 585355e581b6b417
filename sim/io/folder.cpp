#include <ampscope/sim/io/folder.h>

#include <ampscope/sim/io/tensor_file.h>

#include <algorithm>

namespace amp {

namespace fs = std::filesystem;

void walk_folder(const fs::path& folder, const std::function<bool(const fs::path& path, bool is_folder)>& visit,
                 std::vector<std::string>& errors) {
    struct Item {
        fs::path path;
        bool is_folder, is_link;
    };
    std::vector<Item> items;
    std::error_code problem, none;
    for (fs::directory_iterator at(folder, problem), end; !problem && at != end; at.increment(problem))
        items.push_back({at->path(), at->is_directory(none), at->is_symlink(none)});
    if (problem) errors.emplace_back(FileError(folder, "cannot be listed: " + problem.message()).what());
    std::ranges::sort(items, {}, &Item::path);
    for (const Item& item : items)
        if (visit(item.path, item.is_folder) && item.is_folder && !item.is_link) walk_folder(item.path, visit, errors);
}

std::uint64_t file_bytes(const fs::path& file) {
    std::error_code none;
    return fs::is_regular_file(file, none) ? fs::file_size(file, none) : 0;
}

} // namespace amp

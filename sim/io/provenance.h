// Where a report's numbers come from: files and their hashes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace amp {

struct SourceFile {
    std::string name;
    std::uint64_t bytes = 0;
    std::string sha256; ///< in hex, as sha256sum prints it
};

/// The SHA-256 of a text, in hex.
std::string sha256_of(std::string_view text);

/// Throws FileError.
SourceFile hashed(const std::filesystem::path& file, const std::string& name);

/// The files of these paths: the files themselves, and in folders what recordings consist of (tensors, run.json, logs),
/// but no checkpoints. Paths that do not exist, or are no regular files, have none. Throws FileError.
std::vector<SourceFile> source_files(const std::set<std::filesystem::path>& paths);

} // namespace amp

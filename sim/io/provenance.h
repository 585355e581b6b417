// Where a report's numbers come from: files and their hashes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace amp {

struct SourceFile {
    std::string name;
    std::uint64_t bytes = 0;
    std::string sha256; ///< in hex, as sha256sum prints it
};

/// Throws FileError.
SourceFile hashed(const std::filesystem::path& file, const std::string& name);

} // namespace amp

// Archives of torch.save with pickles that are made by hand.
#pragma once

#include "io_files.h"

#include <doctest/doctest.h>
#include <zip.h>

#include <string>
#include <vector>

namespace amp::test {

/// An archive as torch.save writes it, with the given pickle and one storage of 24 bytes.
inline fs::path pt_of(const fs::path& path, std::string_view pickle,
                      std::string_view storage = "abcdefghijklmnopqrstuvwx") {
    zip_t* archive = zip_open(path.c_str(), ZIP_CREATE | ZIP_TRUNCATE, nullptr);
    REQUIRE(archive != nullptr);
    REQUIRE(zip_file_add(archive, "t/data.pkl", zip_source_buffer(archive, pickle.data(), pickle.size(), 0), 0) == 0);
    REQUIRE(zip_file_add(archive, "t/data/0", zip_source_buffer(archive, storage.data(), storage.size(), 0), 0) == 1);
    REQUIRE(zip_close(archive) == 0);
    return path;
}

inline std::string text(std::string_view s) { return "X" + little_endian(s.size(), 4) + std::string(s); }
inline std::string number(std::int64_t n) { return "\x8a\x08" + little_endian(static_cast<std::uint64_t>(n), 8); }
inline std::string tuple(const std::vector<std::int64_t>& items) {
    std::string pickle = "(";
    for (const std::int64_t item : items) pickle += number(item);
    return pickle + "t";
}
/// A tensor over storage 0, of `size` elements.
inline std::string tensor(std::int64_t offset, const std::vector<std::int64_t>& shape,
                          const std::vector<std::int64_t>& stride, const std::string& storage = "FloatStorage",
                          std::int64_t size = 6, const std::string& key = "0") {
    return "ctorch._utils\n_rebuild_tensor_v2\n((" + text("storage") + "ctorch\n" + storage + "\n" + text(key) +
           text("cpu") + number(size) + "tQ" + number(offset) + tuple(shape) + tuple(stride) + "\x89}tR";
}
inline std::string pickled(const std::string& value) { return "\x80\x02" + value + "."; }
inline std::string dict_of(const std::string& name, const std::string& value) { return "}" + text(name) + value + "s"; }

} // namespace amp::test

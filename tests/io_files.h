// Shared by the tests of sim/io: a scratch folder, whole files, whole tensors.
#pragma once

#include "needs.h"

#include <ampscope/sim/io/tensor_file.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace amp::test {

namespace fs = std::filesystem;

/// A new folder that exists while the object lives.
class Scratch {
  public:
    Scratch() {
        std::string pattern = (fs::temp_directory_path() / "ampscope-test-XXXXXX").string();
        if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no scratch folder");
        folder_ = pattern;
    }
    ~Scratch() {
        std::error_code ignored;
        fs::remove_all(folder_, ignored);
    }
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;

    [[nodiscard]] fs::path operator/(const std::string& name) const { return folder_ / name; }
    [[nodiscard]] const fs::path& folder() const { return folder_; }

  private:
    fs::path folder_;
};

/// A file in memory with a path that has an extension; quick to rewrite.
class MemoryFile {
  public:
    explicit MemoryFile(const std::string& extension)
        : descriptor_(::memfd_create("test", 0)), path_(scratch_ / ("x" + extension)) {
        if (descriptor_ < 0) throw std::runtime_error("no memory file");
        fs::create_symlink("/proc/self/fd/" + std::to_string(descriptor_), path_);
    }
    ~MemoryFile() { ::close(descriptor_); }
    MemoryFile(const MemoryFile&) = delete;
    MemoryFile& operator=(const MemoryFile&) = delete;

    const fs::path& set(std::string_view bytes) {
        const auto size = static_cast<off_t>(bytes.size());
        if (::ftruncate(descriptor_, size) != 0 || ::pwrite(descriptor_, bytes.data(), bytes.size(), 0) != size)
            throw std::runtime_error("memory file not written");
        return path_;
    }

  private:
    Scratch scratch_;
    int descriptor_;
    fs::path path_;
};

inline fs::path write_file(const fs::path& path, std::string_view bytes) {
    std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return path;
}

inline std::string read_file(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}

/// All bytes of a tensor through its stream, `chunk` bytes at a time (a multiple of 24: whole elements of any dtype).
inline std::string tensor_bytes(const TensorFile& file, std::size_t tensor, std::size_t chunk = 24000) {
    const auto stream = file.stream(tensor);
    std::string bytes, part(chunk, '\0');
    for (;;) {
        const std::size_t n = stream->read(std::as_writable_bytes(std::span(part)));
        bytes.append(part, 0, n);
        if (n < chunk) return bytes;
    }
}

/// Opens a file and reads all of it. Returns the message of the FileError that stopped it, else nothing.
inline std::string error_of(const fs::path& path, const OpenOptions& options = {}) {
    try {
        const auto file = open_tensor_file(path, options);
        for (std::size_t i = 0; i < file->tensors().size(); ++i)
            if (tensor_bytes(*file, i).size() != file->tensors()[i].bytes) return "the stream's length is wrong";
    } catch (const FileError& error) {
        return error.what();
    }
    return {};
}

inline std::string little_endian(std::uint64_t value, int bytes) {
    std::string text;
    for (int i = 0; i < bytes; ++i) text.push_back(static_cast<char>(value >> (8 * i) & 0xff));
    return text;
}

inline fs::path golden(const std::string& name) { return fs::path(AMPSCOPE_TEST_DATA) / "io" / name; }

/// A file or folder of the material beside the project ($AMPSCOPE_SHARED, else ../shared). If it is not there, the test
/// is skipped and the path is empty.
inline fs::path shared(const std::string& name, const std::string& what) {
    const char* folder = std::getenv("AMPSCOPE_SHARED");
    const fs::path path =
        (folder != nullptr ? fs::path(folder) : fs::path(AMPSCOPE_TEST_DATA) / "../../../shared") / name;
    if (fs::exists(path)) return path;
    skip(what + " (" + name + " in the folder ../shared, or in that of the environment variable AMPSCOPE_SHARED)");
    return {};
}

/// Gradients that PyTorch wrote; an empty path if they are not there.
inline fs::path real_recordings() { return shared("recorded", "gradients of three runs, as PyTorch wrote them"); }

} // namespace amp::test

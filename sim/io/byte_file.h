// A file open for reading at any offset, from any thread.
#pragma once

#include <ampscope/sim/io/tensor_file.h>

#include <algorithm>

namespace amp {

/// A part of a file: all of it unless said otherwise.
struct FileRange {
    std::filesystem::path path;
    std::uint64_t begin = 0;
    std::optional<std::uint64_t> length{}; ///< none: up to the end of the file
};

class ByteFile {
  public:
    /// Throws FileError unless the path is a readable regular file.
    explicit ByteFile(std::filesystem::path path);
    ~ByteFile();
    ByteFile(const ByteFile&) = delete;
    ByteFile& operator=(const ByteFile&) = delete;

    [[nodiscard]] const std::filesystem::path& path() const { return path_; }
    [[nodiscard]] std::uint64_t size() const { return size_; }
    /// Fills `out` with the bytes from `offset` on; throws FileError if the file ends before.
    void read_at(std::uint64_t offset, std::span<std::byte> out) const;
    /// The bytes [offset, offset + size) as text; the caller has checked them against size().
    [[nodiscard]] std::string text_at(std::uint64_t offset, std::uint64_t size) const;

  private:
    std::filesystem::path path_;
    int descriptor_;
    std::uint64_t size_ = 0;
};

/// Reads `size` bytes (fewer if the stream ends before) into `data`. It grows as bytes arrive, whatever size a header
/// claims.
template <class Bytes>
void read_growing(ByteStream& stream, std::uint64_t size, Bytes& data) {
    constexpr std::uint64_t step = 1 << 20;
    while (data.size() < size) {
        const std::size_t begin = data.size();
        data.resize(static_cast<std::size_t>(std::min(size, begin + std::max<std::uint64_t>(step, begin / 2))));
        const std::size_t n = stream.read(std::as_writable_bytes(std::span(data)).subspan(begin));
        if (n < data.size() - begin) return data.resize(begin + n);
    }
}

/// Reverses the order of the bytes of each element of `item` bytes, in place.
void swap_bytes(std::span<std::byte> data, std::size_t item);

/// A tensor file whose tensors are plain ranges of one file: safetensors, npy, raw.
class FlatTensorFile : public TensorFile {
  public:
    [[nodiscard]] bool random_access(std::size_t) const override { return true; }
    void read_at(std::size_t tensor, std::uint64_t offset, std::span<std::byte> out) const override;

  protected:
    explicit FlatTensorFile(const std::filesystem::path& path) : TensorFile(path), file_(path) {}

    ByteFile file_;
    std::vector<std::uint64_t> begins_; ///< offset of each tensor's first byte in the file
    std::size_t swapped_item_ = 0;      ///< bytes of a big-endian number; 0 for little-endian data
};

std::unique_ptr<TensorFile> open_safetensors(const std::filesystem::path& path);
std::unique_ptr<TensorFile> open_npy(const std::filesystem::path& path, const OpenOptions& options);
std::unique_ptr<TensorFile> open_npz(const std::filesystem::path& path, const OpenOptions& options);
/// A range that is given with its length is a part of a checkpoint: its tensors are read in C order, and it may hold
/// none.
std::unique_ptr<TensorFile> open_pt(const FileRange& range);
std::unique_ptr<TensorFile> open_raw(const std::filesystem::path& path, const OpenOptions& options);

} // namespace amp

// Writing tensor files: safetensors, npy and raw, in chunks, under a temporary name until the file is complete.
#pragma once

#include <ampscope/sim/base/fingerprint.h>
#include <ampscope/sim/io/tensor_file.h>

#include <string_view>

namespace amp {

/// The file that is made or replaced by writing to `path`: what links lead to, also those to nothing yet.
std::filesystem::path target_of(const std::filesystem::path& path);

/// A file that appears under its name only when it is complete: written beside it, synced and renamed by commit().
/// Without commit() nothing is left behind and a file of that name stays as it was.
class AtomicFile {
  public:
    /// Throws FileError if no file can be created beside `path`, or if there is something else than a file.
    explicit AtomicFile(std::filesystem::path path);
    ~AtomicFile();
    AtomicFile(const AtomicFile&) = delete;
    AtomicFile& operator=(const AtomicFile&) = delete;

    [[nodiscard]] const std::filesystem::path& path() const { return path_; }
    /// Throws FileError if the bytes cannot be written (a full disk).
    void append(std::span<const std::byte> bytes);
    /// Replaces bytes that were appended. Throws FileError.
    void overwrite(std::uint64_t offset, std::span<const std::byte> bytes);
    /// Makes the file visible under its name. Throws FileError; call it once, last.
    void commit();

  private:
    std::filesystem::path path_, temporary_;
    int descriptor_ = -1;
};

/// The file that an AtomicFile of that name was to become, had its process not been killed; empty for other names.
std::filesystem::path target_of_partial(const std::filesystem::path& file);

/// Writes a whole text atomically. Throws FileError.
void write_text_file(const std::filesystem::path& path, std::string_view text);

/// Takes the elements of the announced tensors, one tensor after the other.
class TensorWriter {
  public:
    TensorWriter(const std::filesystem::path& path, std::string_view header, std::uint64_t bytes, bool sealed = false);

    /// The next bytes, little-endian; a chunk may end anywhere, also within an element or beyond the end of a tensor.
    /// Throws std::logic_error for more bytes than announced, FileError if they cannot be written.
    void append(std::span<const std::byte> bytes);
    /// Completes the file. Throws std::logic_error if bytes are missing, FileError if it cannot be put in place.
    void commit();

  private:
    void write(std::span<const std::byte> bytes);

    AtomicFile file_;
    std::uint64_t left_;
    bool sealed_;
    Fingerprint fingerprint_;
};

/// Begins a file whose kind is that of its extension: .safetensors, .npy, else raw. Of each entry name, dtype and shape
/// are used. .npy and raw files hold exactly one tensor and no metadata. NumPy has no name for BF16 and the 8-bit
/// floats: they become '<V2' and '|V1', as ml_dtypes writes them, to be read with OpenOptions::as; sub-byte dtypes
/// cannot be written as .npy. Throws FileError for what the format cannot hold.
TensorWriter create_tensor_file(const std::filesystem::path& path, std::vector<TensorEntry> tensors,
                                const std::map<std::string, std::string>& metadata = {});

/// A .safetensors file whose metadata begin with "fingerprint": that of all bytes of the file, with zeros for its own
/// digits. Damage within one byte always changes it, any other but for once in 2^64. No key of `metadata` may come
/// before that.
TensorWriter create_sealed_file(const std::filesystem::path& path, std::vector<TensorEntry> tensors,
                                std::map<std::string, std::string> metadata);

/// Throws FileError unless the bytes of the file are those that create_sealed_file() wrote.
void check_seal(const std::filesystem::path& path);

} // namespace amp

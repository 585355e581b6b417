// Writing tensor files (safetensors, npy and raw) in pieces, under a temporary name until the file is complete.
#pragma once

#include <ampscope/sim/base/fingerprint.h>
#include <ampscope/sim/io/tensor_file.h>

#include <string>
#include <string_view>
#include <vector>

namespace amp {

/// The file that writing to `path` makes or replaces: the target of links, even of those that lead to nothing yet.
std::filesystem::path target_of(const std::filesystem::path& path);

/// A file that appears under its name only when it is complete: it is written beside it, then synced and renamed by
/// commit(). Without commit() nothing is left behind, and an existing file of that name stays as it was.
class AtomicFile {
  public:
    /// Throws FileError if no file can be created beside `path`, or if `path` exists and is not a file.
    explicit AtomicFile(std::filesystem::path path);
    ~AtomicFile();
    AtomicFile(const AtomicFile&) = delete;
    AtomicFile& operator=(const AtomicFile&) = delete;

    [[nodiscard]] const std::filesystem::path& path() const { return path_; }
    /// Throws FileError if the bytes cannot be written (a full disk).
    void append(std::span<const std::byte> bytes);
    /// Replaces bytes that were appended before. Throws FileError.
    void overwrite(std::uint64_t offset, std::span<const std::byte> bytes);
    /// Makes the file visible under its name. Throws FileError; call it once, last.
    void commit();

  private:
    std::filesystem::path path_, temporary_;
    int descriptor_ = -1;
};

/// For a file that a killed process left unfinished: the path it was meant for. Empty if the name is not an
/// AtomicFile's.
std::filesystem::path target_of_partial(const std::filesystem::path& file);

/// Writes a whole text atomically. Throws FileError.
void write_text_file(const std::filesystem::path& path, std::string_view text);

/// Writes the elements of the announced tensors, one tensor after the other.
class TensorWriter {
  public:
    TensorWriter(const std::filesystem::path& path, std::string_view header, std::uint64_t bytes, bool sealed = false);

    /// Appends bytes, little-endian; a piece may end anywhere, within an element or beyond the end of a tensor. Throws
    /// std::logic_error for more bytes than announced, FileError if they cannot be written.
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

/// Begins a file of the kind that its extension names: .safetensors, .npy, or .bin or .raw for the elements alone. Of
/// each entry name, dtype and shape are used. All but .safetensors hold one tensor, without metadata. BF16 and 8-bit
/// floats become '<V2' and '|V1' in .npy, as ml_dtypes writes them, for OpenOptions::as; dtypes below 8 bits cannot be
/// written as .npy. Throws FileError for what the format cannot hold, and for any other extension.
TensorWriter create_tensor_file(const std::filesystem::path& path, std::vector<TensorEntry> tensors,
                                const std::map<std::string, std::string>& metadata = {});

/// A .safetensors file whose metadata begin with "fingerprint": the fingerprint of all bytes of the file, taken with
/// zeros in place of its own digits. A change within one byte always changes it, any other change goes unnoticed once
/// in 2^64. No key of `metadata` may sort before that key.
TensorWriter create_sealed_file(const std::filesystem::path& path, std::vector<TensorEntry> tensors,
                                std::map<std::string, std::string> metadata);

/// Throws FileError unless the bytes of the file are those that create_sealed_file() wrote.
void check_seal(const std::filesystem::path& path);

/// An array of a .npz archive: name, dtype and shape of the entry are used.
struct NpzArray {
    TensorEntry entry{};
    std::vector<std::byte> bytes{}; ///< its elements, little-endian, in C order
};

/// The bytes of a .npz archive of the arrays, not compressed and without a date: the same arrays give the same bytes.
/// `path` is what errors name. Throws FileError for what .npy cannot hold, and where two arrays have one name.
std::string npz_archive(const std::filesystem::path& path, const std::vector<NpzArray>& arrays);

} // namespace amp

// Reading tensor files: a list of entries, and the elements of one entry as bytes.
//
// Files are read with pread, never mapped: a file that is truncated meanwhile is an error, not a crash. Memory is never
// allocated because a header claims some size, and stays bounded however large a tensor is.
#pragma once

#include <ampscope/sim/io/dtype.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

namespace amp {

/// A file that cannot be read as what it claims to be. what() is "FILE: PLACE: what is wrong; what to do".
class FileError : public std::runtime_error {
  public:
    /// Names in a hostile file may contain line breaks and terminal escapes, or be megabytes long: control characters
    /// become '?', and the text is cut after 1000 bytes.
    FileError(const std::filesystem::path& file, const std::string& what);
    [[nodiscard]] const std::string& file() const { return file_; } ///< the file's name as it begins what()

  private:
    std::string file_;
};

struct TensorEntry {
    std::string name{};
    DType dtype = DType::f32;
    std::vector<std::uint64_t> shape{};
    std::uint64_t count = 0; ///< number of elements: the product of the shape
    std::uint64_t bytes = 0; ///< size of `count` packed elements
    /// Elements are read in the order in which they are stored, which is not the C order of `shape` (Fortran order, a
    /// transposed view). Counts do not depend on the order; blocks follow the stored one.
    bool storage_order = false;
    /// How often each element occurs in the tensor: more than once in a view made by torch's expand. distinct() reads
    /// each element once.
    std::uint64_t repeats = 1;
    /// The type of the codes that stand in the file where an element is a code times a scale. The elements are these
    /// products, in FP64, which holds them exactly (NVFP4's as TransformerEngine computes them).
    std::optional<DType> codes{};

    /// The type that the values had when they were written.
    [[nodiscard]] const DTypeInfo& stored() const { return info(codes.value_or(dtype)); }
};

/// What the caller knows about a file that the file itself does not say.
struct OpenOptions {
    std::optional<DType> as{};          ///< dtype of elements whose type NumPy lost: '<V2', '|V1', '<f1', also u1/u2
    std::optional<DType> dtype{};       ///< dtype of the elements of raw files, which need it
    std::vector<std::uint64_t> shape{}; ///< shape in a raw file; empty: one dimension, as long as the file
    std::string_view dtype_option{};    ///< what users name that dtype by, for errors: "--dtype"; empty: they cannot
};

/// The bytes of one tensor, in order.
class ByteStream {
  public:
    virtual ~ByteStream() = default;
    /// Fills `out` with the next bytes (whole elements, little-endian); fewer only at the end. Returns how many.
    virtual std::size_t read(std::span<std::byte> out) = 0;
};

/// What a checkpoint holds that is no tensor: an optimizer's learning rate, a parameter's name.
using PlainValue = std::variant<double, std::string>;

class TensorFile {
  public:
    virtual ~TensorFile() = default;

    [[nodiscard]] const std::filesystem::path& path() const { return path_; }
    [[nodiscard]] const std::vector<TensorEntry>& tensors() const { return tensors_; }
    /// safetensors' __metadata__; empty for other files.
    [[nodiscard]] const std::map<std::string, std::string>& metadata() const { return metadata_; }
    /// What was skipped, and why: lines for the user.
    [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }
    /// What of a checkpoint of many files cannot be read, and why: one error for each file. The rest is in tensors().
    [[nodiscard]] const std::vector<FileError>& problems() const { return problems_; }

    /// The numbers and texts that stand beside the tensors of PyTorch's files, by their dotted names. Throws FileError.
    [[nodiscard]] virtual std::map<std::string, PlainValue> values() const { return {}; }

    /// Whether read_at() works for this tensor; if not, only stream() does (compressed members).
    [[nodiscard]] virtual bool random_access(std::size_t tensor) const = 0;
    /// Fills `out` with the tensor's bytes from `offset` on; both are multiples of the dtype's unit_bytes(). May be
    /// called from any thread.
    virtual void read_at(std::size_t tensor, std::uint64_t offset, std::span<std::byte> out) const = 0;
    /// A sequential reader, valid as long as the file object. One stream of a file at a time.
    [[nodiscard]] virtual std::unique_ptr<ByteStream> stream(std::size_t tensor) const;
    /// The same for a tensor whose elements repeat, with each element once.
    [[nodiscard]] virtual std::unique_ptr<ByteStream> distinct(std::size_t tensor) const { return stream(tensor); }

  protected:
    explicit TensorFile(std::filesystem::path path) : path_(std::move(path)) {}

    std::filesystem::path path_;
    std::vector<TensorEntry> tensors_;
    std::map<std::string, std::string> metadata_;
    std::vector<std::string> notes_;
    std::vector<FileError> problems_;
};

/// One tensor as a file of its own, with the elements of an expanded view once each: code that counts elements counts
/// these and multiplies by repeats(). The file must outlive it.
class DistinctElements : public TensorFile {
  public:
    DistinctElements(const TensorFile& file, std::size_t tensor);

    [[nodiscard]] std::uint64_t repeats() const { return repeats_; }
    [[nodiscard]] bool random_access(std::size_t) const override {
        return repeats_ == 1 && file_.random_access(tensor_);
    }
    void read_at(std::size_t, std::uint64_t offset, std::span<std::byte> out) const override {
        file_.read_at(tensor_, offset, out);
    }
    [[nodiscard]] std::unique_ptr<ByteStream> stream(std::size_t) const override { return file_.distinct(tensor_); }

  private:
    const TensorFile& file_;
    std::size_t tensor_;
    std::uint64_t repeats_;
};

/// The elements [begin, end) of a tensor whose elements do not repeat, as a file of its own. Both are whole bytes. The
/// file must outlive it.
class TensorRange : public TensorFile {
  public:
    TensorRange(const TensorFile& file, std::size_t tensor, std::uint64_t begin, std::uint64_t end);

    [[nodiscard]] bool random_access(std::size_t) const override { return file_.random_access(tensor_); }
    void read_at(std::size_t, std::uint64_t offset, std::span<std::byte> out) const override {
        file_.read_at(tensor_, first_byte_ + offset, out);
    }
    [[nodiscard]] std::unique_ptr<ByteStream> stream(std::size_t) const override;

  private:
    const TensorFile& file_;
    std::size_t tensor_;
    std::uint64_t first_byte_;
};

/// Opens a file by its extension: .safetensors, .npy, .npz, .pt, .pth; any other is raw and needs options.dtype. A
/// checkpoint of many files is opened by the file that names the others, Hugging Face's MODEL.safetensors.index.json or
/// the .metadata of a distributed checkpoint of PyTorch, or by its folder, which may also hold a distributed checkpoint
/// in safetensors. Throws FileError.
std::unique_ptr<TensorFile> open_tensor_file(const std::filesystem::path& path, const OpenOptions& options = {});
/// The same for those who need all of it: the first of problems() is thrown.
std::unique_ptr<TensorFile> open_complete_file(const std::filesystem::path& path, const OpenOptions& options = {});

/// Adds the error as a line unless its file has one: in a damaged file every tensor may be an error.
void add_error(std::vector<std::string>& errors, const FileError& error);

/// Whether the file is one that names the others of a checkpoint.
bool names_files(const std::filesystem::path& path);
/// The files that Hugging Face's index names; none for other files, and for one that cannot be read.
std::vector<std::filesystem::path> files_of_index(const std::filesystem::path& path);
/// Whether the file's name is one that a rank gives its shards in a distributed checkpoint in safetensors; such a
/// checkpoint is opened by its folder.
bool is_rank_file(const std::filesystem::path& path);

/// Whether open_tensor_file knows the extension without further options.
bool is_tensor_file(const std::filesystem::path& path);

/// Whether files with that extension (NumPy's) may have lost their number format, so that options.as has to give it.
bool may_lack_format(const std::filesystem::path& path);

/// Computes count and bytes from shape and dtype. Throws FileError if they overflow, or are not a whole number of
/// bytes.
void finish_entry(TensorEntry& entry, const std::filesystem::path& file);

} // namespace amp

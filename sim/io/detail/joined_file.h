// A checkpoint of many files as one tensor file: each tensor consists of shards, which are tensors of other files.
#pragma once

#include <ampscope/sim/io/detail/tensor_box.h>
#include <ampscope/sim/io/tensor_file.h>

#include <functional>
#include <map>
#include <mutex>

namespace amp {

/// A tensor of a file that is a box of the joined tensor.
struct TensorShard {
    TensorBox box;
    std::size_t source = 0; ///< what JoinedFile's `open` opens
    std::size_t tensor = 0; ///< index of the tensor in that file
};

class JoinedFile : public TensorFile {
  public:
    /// Opens the file of a source. Throws FileError.
    using Open = std::function<std::shared_ptr<const TensorFile>(std::size_t source)>;

    /// `path` stands for the checkpoint in messages. As many files of sources stay open as `most_open` says.
    JoinedFile(std::filesystem::path path, Open open, std::size_t most_open, bool random_access);

    /// Adds a tensor, or a line about it to problems() if the shards are not the whole of it.
    void add(TensorEntry entry, std::vector<TensorShard> shards);
    void add_problem(const std::string& what);
    /// What is wrong with one of the files: one line for each.
    void add_problem(const FileError& error);
    /// What values() reads when it is asked for: those of a file of that source, below a name.
    void add_value(std::string name, std::size_t source) { values_.emplace_back(std::move(name), source); }
    /// Puts the tensors in the order of their names: it must not depend on how a checkpoint was cut.
    void sort();
    void add_note(std::string note) { notes_.push_back(std::move(note)); }
    /// What the files say of themselves; where they differ, the first counts.
    void add_metadata(const std::map<std::string, std::string>& metadata);

    [[nodiscard]] std::map<std::string, PlainValue> values() const override;
    [[nodiscard]] bool random_access(std::size_t tensor) const override;
    void read_at(std::size_t tensor, std::uint64_t offset, std::span<std::byte> out) const override;
    [[nodiscard]] std::unique_ptr<ByteStream> stream(std::size_t tensor) const override;

  private:
    class Stream;
    struct Placed {
        TensorShard shard;
        PlacedBox box;
    };

    [[nodiscard]] std::shared_ptr<const TensorFile> opened(std::size_t source) const;
    /// The file of a shard, which must hold what is expected of it.
    [[nodiscard]] std::shared_ptr<const TensorFile> file_of(std::size_t tensor, const TensorShard& shard) const;
    /// Fills `out` with the elements [begin, ...) of a tensor: read(shard, bytes_begin, bytes) fills bytes of a shard.
    template <class Read>
    void fill(std::size_t tensor, std::uint64_t begin, std::span<std::byte> out, const Read& read) const;

    Open open_;
    std::size_t most_open_;
    bool random_access_;
    std::vector<std::vector<Placed>> shards_; ///< of each tensor, in the order of their first elements
    std::vector<std::pair<std::string, std::size_t>> values_;
    mutable std::mutex mutex_;
    mutable std::map<std::size_t, std::shared_ptr<const TensorFile>> files_; ///< those that are open
};

/// Whether a name that a checkpoint has for one of its files is that of a file in its folder, or below it.
bool lies_below_folder(const std::filesystem::path& name);

/// How many files of a checkpoint may be open at once: a part of the descriptors that the process may have.
std::size_t most_open_files();

/// Whether the file is one for open_safetensors_index().
bool is_index(const std::filesystem::path& path);
/// Hugging Face's MODEL.safetensors.index.json, whose weight_map names the file of each tensor.
std::unique_ptr<TensorFile> open_safetensors_index(const std::filesystem::path& path);
/// A folder of PyTorch's distributed checkpoint in safetensors: the headers say where the shards lie. Throws FileError
/// if it has no rank's file.
std::unique_ptr<TensorFile> open_sharded_safetensors(const std::filesystem::path& folder);
/// The .metadata of a folder of PyTorch's distributed checkpoint.
std::unique_ptr<TensorFile> open_distributed(const std::filesystem::path& path);

} // namespace amp

// PyTorch's distributed checkpoints (torch.distributed.checkpoint, FileSystemWriter): .metadata is a pickle of the
// plain classes of torch/distributed/checkpoint/metadata.py and filesystem.py, and the .distcp files that it names are
// archives of torch.save, one for each shard, put together. Nothing of the pickle is executed: of an object, the name
// of its class and the state that it would get are looked at.
#include <ampscope/sim/io/byte_file.h>
#include <ampscope/sim/io/detail/joined_file.h>
#include <ampscope/sim/io/detail/pickle.h>
#include <ampscope/sim/io/folder.h>

#include <algorithm>
#include <set>

namespace amp {

namespace {

namespace fs = std::filesystem;
using pickle::Ref;

// A shard takes 24 to 27 values of the pickle and some 123 bytes of it, and about 6 KB of memory. So the limit on
// values is reached first, by some 300,000 shards, which take about 2 GB.
constexpr std::uint64_t most_metadata = 256'000'000;
constexpr std::size_t most_pickled = 8'000'000, most_dimensions = 64;

/// The state of an object of that class, whatever module it is in (they have moved between versions); null for others.
const pickle::Dict* state_of(const Ref& value, std::string_view name) {
    const auto* object = value == nullptr ? nullptr : std::get_if<pickle::Opaque>(&value->data);
    if (object == nullptr || object->state == nullptr || !object->name.starts_with("torch.")) return nullptr;
    const bool is_named = std::string_view(object->name).substr(object->name.rfind('.') + 1) == name;
    return is_named ? std::get_if<pickle::Dict>(&object->state->data) : nullptr;
}

/// An item of a dict, or null.
Ref item_of(const pickle::Dict& dict, std::string_view key) {
    for (const auto& [name, value] : dict.items)
        if (const auto* text = std::get_if<std::string>(&name->data); text != nullptr && *text == key) return value;
    return nullptr;
}

template <class T>
const T* value_as(const Ref& value) {
    return value == nullptr ? nullptr : std::get_if<T>(&value->data);
}

std::optional<std::uint64_t> size_of(const Ref& value) {
    const auto* number = value_as<std::int64_t>(value);
    if (number == nullptr || *number < 0) return std::nullopt;
    return static_cast<std::uint64_t>(*number);
}

std::optional<Extents> extents_of(const Ref& value) {
    const auto* sequence = value_as<pickle::Sequence>(value);
    if (sequence == nullptr || sequence->items.size() > most_dimensions) return std::nullopt;
    Extents extents;
    for (const Ref& item : sequence->items) {
        const auto size = size_of(item);
        if (!size) return std::nullopt;
        extents.push_back(*size);
    }
    return extents;
}

/// What an object would be, for messages.
std::string described(const Ref& value) {
    const auto* object = value_as<pickle::Opaque>(value);
    return object == nullptr ? "no object" : "an object of " + object->name + ", whose code is not run";
}

/// Where .metadata says that something is stored.
struct Stored {
    std::string file;
    std::uint64_t begin = 0, length = 0;
    std::string extension; ///< what its bytes have gone through: compression
};

class Reader {
  public:
    explicit Reader(const fs::path& path)
        : path_(path), ranges_(std::make_shared<std::vector<FileRange>>()),
          joined_(std::make_unique<JoinedFile>(
              path, [ranges = ranges_](std::size_t source) { return open_pt(ranges->at(source)); }, 0, false)) {}

    std::unique_ptr<TensorFile> read() {
        const ByteFile file(path_);
        if (file.size() > most_metadata) fail("is longer than 256 MB, more than is read of a checkpoint's metadata");
        const std::string bytes = file.text_at(0, file.size());
        const auto damaged = [this](std::size_t byte, const std::string& what) {
            fail("byte " + std::to_string(byte) + ": " + what);
        };
        const pickle::Pickle pickle = pickle::load(bytes, damaged, most_pickled);
        const pickle::Dict* root = state_of(pickle.root, "Metadata");
        if (root == nullptr) fail("is not the metadata of a distributed checkpoint, but " + described(pickle.root));
        const auto* tensors = value_as<pickle::Dict>(item_of(*root, "state_dict_metadata"));
        const auto* places = value_as<pickle::Dict>(item_of(*root, "storage_data"));
        if (tensors == nullptr || places == nullptr) fail("lacks state_dict_metadata or storage_data");
        for (const auto& [key, value] : places->items) add_place(key, value);
        for (const auto& [key, value] : tensors->items) add_entry(key, value);
        tell_of_absent_files();
        joined_->sort();
        if (joined_->tensors().empty() && joined_->problems().empty()) fail("names no tensor that can be read");
        return std::move(joined_);
    }

  private:
    [[noreturn]] void fail(const std::string& what) const { throw FileError(path_, what); }

    void add_place(const Ref& key, const Ref& value) {
        const pickle::Dict *index = state_of(key, "MetadataIndex"), *info = state_of(value, "_StorageInfo");
        if (index == nullptr) fail("storage_data: a key is " + described(key));
        const auto* name = value_as<std::string>(item_of(*index, "fqn"));
        if (name == nullptr) fail("storage_data: a key without a name");
        const auto offset = extents_of(item_of(*index, "offset")); // none: not a tensor
        if (info == nullptr) fail("storage_data: '" + *name + "': " + described(value));
        const auto* file = value_as<std::string>(item_of(*info, "relative_path"));
        const auto begin = size_of(item_of(*info, "offset")), length = size_of(item_of(*info, "length"));
        const bool is_inside = file != nullptr && lies_below_folder(*file);
        if (!is_inside || !begin || !length || *begin + *length < *begin)
            fail("storage_data: '" + *name + "' is not at a place of a file of this folder");
        Stored stored{*file, *begin, *length, {}};
        if (const auto* extensions = value_as<pickle::Sequence>(item_of(*info, "transform_descriptors")))
            for (const Ref& extension : extensions->items)
                if (const auto* text = value_as<std::string>(extension)) stored.extension = *text;
        if (!places_.emplace(std::pair(*name, offset), std::move(stored)).second)
            fail("storage_data: the shard of '" + *name + "' at " + text_of(offset.value_or(Extents())) +
                 " is there twice");
    }

    void add_entry(const Ref& key, const Ref& value) {
        const auto* name = value_as<std::string>(key);
        if (name == nullptr) fail("state_dict_metadata: a key is no text");
        if (name->size() > 1000) fail("a tensor's name of more than 1000 bytes: '" + *name + "'");
        const pickle::Dict* tensor = state_of(value, "TensorStorageMetadata");
        if (tensor == nullptr) {
            const auto* object = value_as<pickle::Opaque>(value);
            const bool is_bytes = object != nullptr && object->name.ends_with(".BytesStorageMetadata");
            if (!is_bytes) return joined_->add_problem("'" + *name + "': is " + described(value));
            const auto place = places_.find({*name, std::nullopt}); // a number, a text, a list of names
            if (place == places_.end() || !place->second.extension.empty()) return;
            joined_->add_value(*name, ranges_->size());
            return ranges_->push_back(
                {path_.parent_path() / place->second.file, place->second.begin, place->second.length});
        }
        const std::string where = "tensor '" + *name + "': ";
        const DTypeInfo* type = dtype_of(item_of(*tensor, "properties"), where);
        if (type == nullptr) return;
        const auto shape = extents_of(item_of(*tensor, "size"));
        const auto* chunks = value_as<pickle::Sequence>(item_of(*tensor, "chunks"));
        if (!shape || chunks == nullptr) return joined_->add_problem(where + "lacks its size or its chunks");
        try {
            if (auto shards = shards_of(*name, *chunks))
                joined_->add({.name = *name, .dtype = type->dtype, .shape = *shape}, std::move(*shards));
        } catch (const FileError& error) {
            joined_->add_problem(error);
        }
    }

    /// The type of a tensor; null, with a note, if it is not read.
    const DTypeInfo* dtype_of(const Ref& properties, const std::string& where) {
        const auto* object = value_as<pickle::Opaque>(properties);
        const auto* state = object == nullptr ? nullptr : value_as<pickle::Sequence>(object->state);
        const auto* dtype =
            state == nullptr || state->items.empty() ? nullptr : value_as<pickle::Global>(state->items.front());
        const std::string name = dtype == nullptr ? "" : dtype->name.substr(dtype->name.rfind('.') + 1);
        const auto* row = std::ranges::find_if(
            dtypes, [&](const DTypeInfo& t) { return !t.torch.empty() && t.torch == name && t.bits >= 8; });
        if (row != dtypes.end()) return row;
        joined_->add_note(where + (name.empty() ? "its dtype is not stated" : "dtype " + name + " is not read") +
                          "; skipped");
        return nullptr;
    }

    /// Where the shards of a tensor are; std::nullopt if they are in files that are not there. Throws FileError.
    std::optional<std::vector<TensorShard>> shards_of(const std::string& name, const pickle::Sequence& chunks) {
        const std::string where = "tensor '" + name + "': ";
        std::vector<TensorShard> shards;
        std::set<std::string> absent;
        for (const Ref& chunk : chunks.items) {
            const pickle::Dict* state = state_of(chunk, "ChunkStorageMetadata");
            const auto offsets = state == nullptr ? std::nullopt : extents_of(item_of(*state, "offsets"));
            const auto sizes = state == nullptr ? std::nullopt : extents_of(item_of(*state, "sizes"));
            if (!offsets || !sizes) fail(where + "a chunk has no offsets or sizes");
            if (std::ranges::find(*sizes, std::uint64_t{0}) != sizes->end()) continue; // of a rank without rows
            const auto place = places_.find({name, offsets});
            TensorShard shard{.box = {*offsets, *sizes}, .source = ranges_->size(), .tensor = 0};
            if (place == places_.end())
                fail(where + "storage_data does not say where its shard at " + text_of(*offsets) + " is");
            const Stored& stored = place->second;
            if (!stored.extension.empty())
                fail(where + "is stored through the extension '" + stored.extension + "', which is not read");
            const std::optional<std::uint64_t> size = size_of_file(stored.file);
            if (!size) absent.insert(stored.file);
            else if (stored.begin + stored.length > *size)
                throw FileError(path_.parent_path() / stored.file,
                                "byte " + std::to_string(*size) + ": the file ends here; it is truncated or still " +
                                    "being written: a shard of '" + name + "' reaches up to byte " +
                                    std::to_string(stored.begin + stored.length));
            ranges_->push_back({path_.parent_path() / stored.file, stored.begin, stored.length});
            shards.push_back(std::move(shard));
        }
        for (const std::string& file : absent) ++absent_[file];
        if (!absent.empty()) return std::nullopt;
        return shards;
    }

    std::optional<std::uint64_t> size_of_file(const std::string& name) {
        const auto [known, is_new] = sizes_.try_emplace(name);
        const fs::path file = path_.parent_path() / name;
        std::error_code none;
        if (is_new && fs::exists(file, none)) known->second = file_bytes(file);
        return known->second;
    }

    void tell_of_absent_files() {
        for (const auto& [file, tensors] : absent_)
            joined_->add_problem("names " + file + ", which is not there; " + std::to_string(tensors) +
                                 (tensors == 1 ? " tensor is" : " tensors are") + " missing or incomplete");
    }

    const fs::path path_;
    std::map<std::pair<std::string, std::optional<Extents>>, Stored> places_; ///< of shards, and of other values
    std::map<std::string, std::optional<std::uint64_t>> sizes_;               ///< of the files; none: it is not there
    std::map<std::string, std::size_t> absent_;      ///< files, and the number of tensors with shards there
    std::shared_ptr<std::vector<FileRange>> ranges_; ///< of the shards: what the joined file opens
    std::unique_ptr<JoinedFile> joined_;
};

} // namespace

std::unique_ptr<TensorFile> open_distributed(const fs::path& path) { return Reader(path).read(); }

} // namespace amp

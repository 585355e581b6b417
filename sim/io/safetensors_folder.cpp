// Checkpoints of many safetensors files: Hugging Face's, with an index of the tensors' files, and PyTorch's distributed
// ones (torch.distributed.checkpoint.HuggingFaceStorageWriter, save_distributed), in which each rank writes its shards
// and the headers say where they lie: __metadata__ has DCP_SHARDING_INFO, a JSON object
// {"NAME": {"saved_offsets": [...]}}. The shape of the whole stands nowhere: it is the least that holds all shards, as
// PyTorch's own reader has it.
#include <ampscope/sim/io/byte_file.h>
#include <ampscope/sim/io/detail/joined_file.h>
#include <ampscope/sim/io/folder.h>
#include <ampscope/sim/io/json_reader.h>

#include <algorithm>
#include <set>

namespace amp {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* sharding_info = "DCP_SHARDING_INFO";

/// Files of a checkpoint, opened by number.
JoinedFile::Open opener(const std::vector<fs::path>& files) {
    return [files](std::size_t source) -> std::shared_ptr<const TensorFile> { return open_safetensors(files[source]); };
}

TensorBox whole(const TensorEntry& entry) { return {Extents(entry.shape.size(), 0), entry.shape}; }

/// The names of an index, by the file that it gives for them, in the order of the index.
std::vector<std::pair<std::string, std::set<std::string>>> names_by_file(const fs::path& index) {
    const Json json = read_json_object(index);
    const auto map = json.find("weight_map");
    if (map == json.end() || !map->is_object()) throw FileError(index, "has no weight_map, an object");
    std::vector<std::pair<std::string, std::set<std::string>>> files;
    std::map<std::string, std::size_t> known;
    for (const auto& item : map->items()) {
        if (!item.value().is_string() || !lies_below_folder(item.value().get<std::string>()))
            throw FileError(index, "weight_map: '" + item.key() + "' is not in a file of this folder");
        const auto name = item.value().get<std::string>();
        const auto [at, is_new] = known.try_emplace(name, files.size());
        if (is_new) files.emplace_back(name, std::set<std::string>());
        files[at->second].second.insert(item.key());
    }
    std::ranges::sort(files);
    return files;
}

/// The offsets of a file's shards by their names.
std::map<std::string, Extents> offsets_in(const TensorFile& file) {
    std::map<std::string, Extents> offsets;
    const auto text = file.metadata().find(sharding_info);
    if (text == file.metadata().end()) return offsets;
    const Json json =
        parse_json(text->second, file.path(), std::string("metadata: ") + sharding_info + ": ", Nonfinite::refused);
    for (const TensorEntry& entry : file.tensors())
        offsets[entry.name] =
            taken(file.path(), std::string("metadata: ") + sharding_info + ": tensor '" + entry.name + "'",
                  [&] { return json.at(entry.name).at("saved_offsets").get<Extents>(); });
    return offsets;
}

/// The shards of one tensor, as they are found.
struct Gathered {
    TensorEntry entry;
    std::vector<TensorShard> shards;
};

/// Collects the shards of a folder by the names of their tensors, in the order in which they appear.
class Gatherer {
  public:
    explicit Gatherer(JoinedFile& joined) : joined_(joined) {}

    void add_file(const TensorFile& file, std::size_t source) {
        const std::map<std::string, Extents> offsets = offsets_in(file);
        for (std::size_t i = 0; i < file.tensors().size(); ++i) {
            const TensorEntry& entry = file.tensors()[i];
            const auto [known, is_new] = index_.try_emplace(entry.name, tensors_.size());
            if (is_new) tensors_.push_back({.entry = {.name = entry.name, .dtype = entry.dtype}, .shards = {}});
            const auto own = offsets.find(entry.name);
            add_shard(tensors_[known->second], file, i, source,
                      own == offsets.end() ? whole(entry).offsets : own->second);
        }
        joined_.add_metadata(file.metadata());
    }
    void finish() {
        for (Gathered& tensor : tensors_) joined_.add(std::move(tensor.entry), std::move(tensor.shards));
    }

  private:
    void add_shard(Gathered& tensor, const TensorFile& file, std::size_t i, std::size_t source,
                   const Extents& offsets) {
        const TensorEntry& entry = file.tensors()[i];
        const std::string where = "tensor '" + entry.name + "': ";
        Extents& shape = tensor.entry.shape;
        if (tensor.shards.empty()) shape.assign(entry.shape.size(), 0);
        if (entry.dtype != tensor.entry.dtype || entry.shape.size() != shape.size() || offsets.size() != shape.size())
            throw FileError(file.path(), where + "the shard differs in dtype or dimensions from those of other files");
        for (std::size_t d = 0; d < shape.size(); ++d) {
            constexpr std::uint64_t limit = std::uint64_t{1} << 62;
            if (offsets[d] > limit || entry.shape[d] > limit)
                throw FileError(file.path(), where + "its shard begins beyond any tensor, at " + text_of(offsets));
            shape[d] = std::max(shape[d], offsets[d] + entry.shape[d]);
        }
        tensor.shards.push_back({.box = {offsets, entry.shape}, .source = source, .tensor = i});
    }

    JoinedFile& joined_;
    std::vector<Gathered> tensors_;
    std::map<std::string, std::size_t> index_;
};

std::unique_ptr<TensorFile> made(std::unique_ptr<JoinedFile> joined) {
    if (joined->tensors().empty() && joined->problems().empty()) throw FileError(joined->path(), "holds no tensor");
    joined->sort();
    return joined;
}

} // namespace

bool is_rank_file(const fs::path& path) {
    const std::string name = path.filename().string();
    return name.starts_with("shard-") && name.find("-model-") != std::string::npos &&
           path.extension() == ".safetensors";
}

bool is_index(const fs::path& path) { return path.string().ends_with(".safetensors.index.json"); }

std::vector<fs::path> files_of_index(const fs::path& path) {
    std::vector<fs::path> files;
    if (!is_index(path)) return files;
    try {
        for (const auto& [name, tensors] : names_by_file(path)) files.push_back(path.parent_path() / name);
    } catch (const FileError&) { // who opens it learns why
    }
    return files;
}

std::unique_ptr<TensorFile> open_safetensors_index(const fs::path& path) {
    const auto named = names_by_file(path);
    const std::vector<fs::path> files = files_of_index(path);
    auto joined = std::make_unique<JoinedFile>(path, opener(files), most_open_files(), true);
    std::set<std::string> seen;
    for (std::size_t source = 0; source < files.size(); ++source) {
        const auto& [name, tensors] = named[source];
        std::error_code none;
        const bool is_there = fs::exists(files[source], none);
        if (!is_there || fs::is_directory(files[source], none)) {
            joined->add_problem("weight_map: names " + name + (is_there ? ", a folder; " : ", which is not there; ") +
                                std::to_string(tensors.size()) + (tensors.size() == 1 ? " tensor is" : " tensors are") +
                                " missing");
            continue;
        }
        try {
            const auto file = open_safetensors(files[source]);
            std::set<std::string> missing = tensors;
            for (std::size_t i = 0; i < file->tensors().size(); ++i) {
                const TensorEntry& entry = file->tensors()[i];
                if (missing.erase(entry.name) == 0) {
                    joined->add_note("'" + entry.name + "' in " + name + " is not as the index has it; skipped");
                    continue;
                }
                joined->add(entry, {{.box = whole(entry), .source = source, .tensor = i}});
            }
            for (const std::string& tensor : missing)
                joined->add_problem("weight_map: '" + tensor + "' is not in " + name);
            joined->add_metadata(file->metadata());
        } catch (const FileError& error) {
            joined->add_problem(error);
        }
    }
    return made(std::move(joined));
}

std::unique_ptr<TensorFile> open_sharded_safetensors(const fs::path& folder) {
    std::vector<fs::path> files;
    std::error_code problem;
    for (fs::directory_iterator at(folder, problem), end; !problem && at != end; at.increment(problem))
        if (is_rank_file(at->path())) files.push_back(at->path());
    if (problem) throw FileError(folder, "cannot be listed: " + problem.message());
    if (files.empty()) throw FileError(folder, "a folder, not a regular file, and no rank's shards are in it");
    std::ranges::sort(files);
    auto joined = std::make_unique<JoinedFile>(folder, opener(files), most_open_files(), true);
    Gatherer gatherer(*joined);
    for (std::size_t source = 0; source < files.size(); ++source) {
        try {
            gatherer.add_file(*open_safetensors(files[source]), source);
        } catch (const FileError& error) {
            joined->add_problem(error);
        }
    }
    gatherer.finish();
    return made(std::move(joined));
}

} // namespace amp

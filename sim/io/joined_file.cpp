#include <ampscope/sim/io/detail/joined_file.h>

#include <algorithm>
#include <numeric>

#include <sys/resource.h>

namespace amp {

JoinedFile::JoinedFile(std::filesystem::path path, Open open, std::size_t most_open, bool random_access)
    : TensorFile(std::move(path)), open_(std::move(open)), most_open_(most_open), random_access_(random_access) {}

void JoinedFile::add_problem(const std::string& what) { add_problem(FileError(path_, what)); }

void JoinedFile::add_problem(const FileError& error) {
    constexpr std::size_t most = 100;
    const bool is_part = error.file() != FileError(path_, "").file();
    const auto is_known = [&](const FileError& earlier) { return is_part && earlier.file() == error.file(); };
    if (problems_.size() > most || std::ranges::any_of(problems_, is_known)) return;
    problems_.push_back(problems_.size() < most ? error : FileError(path_, "more of it cannot be read"));
}

void JoinedFile::add_metadata(const std::map<std::string, std::string>& metadata) {
    metadata_.insert(metadata.begin(), metadata.end());
}

void JoinedFile::add(TensorEntry entry, std::vector<TensorShard> shards) {
    finish_entry(entry, path_);
    const std::string where = "tensor '" + entry.name + "': ";
    std::vector<TensorBox> boxes;
    for (const TensorShard& shard : shards) boxes.push_back(shard.box);
    if (const auto fault = fault_of_boxes(entry.shape, boxes)) return add_problem(where + *fault);
    if (shards.size() > 1 && info(entry.dtype).bits < 8)
        return add_problem(where + "shards of elements that are smaller than a byte are not read");
    std::vector<Placed> placed;
    for (TensorShard& shard : shards)
        if (shard.box.count() > 0) placed.push_back({shard, PlacedBox(entry.shape, shard.box)});
    std::ranges::sort(placed, {}, [](const Placed& p) { return p.box.position(0); });
    shards_.push_back(std::move(placed));
    tensors_.push_back(std::move(entry));
}

void JoinedFile::sort() {
    std::vector<std::size_t> order(tensors_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, {}, [&](std::size_t i) -> const std::string& { return tensors_[i].name; });
    std::vector<TensorEntry> tensors;
    std::vector<std::vector<Placed>> shards;
    for (const std::size_t i : order) {
        tensors.push_back(std::move(tensors_[i]));
        shards.push_back(std::move(shards_[i]));
    }
    tensors_ = std::move(tensors);
    shards_ = std::move(shards);
}

std::map<std::string, PlainValue> JoinedFile::values() const {
    std::map<std::string, PlainValue> values;
    for (const auto& [name, source] : values_)
        for (const auto& [key, value] : opened(source)->values())
            values.emplace(key.empty() ? name : name + "." + key, value);
    return values;
}

std::shared_ptr<const TensorFile> JoinedFile::opened(std::size_t source) const {
    {
        const std::lock_guard lock(mutex_);
        if (const auto found = files_.find(source); found != files_.end()) return found->second;
    }
    std::shared_ptr<const TensorFile> file = open_(source);
    const std::lock_guard lock(mutex_);
    if (!files_.empty() && files_.size() >= most_open_) files_.erase(files_.begin());
    if (most_open_ > 0) files_.emplace(source, file);
    return file;
}

std::shared_ptr<const TensorFile> JoinedFile::file_of(std::size_t tensor, const TensorShard& shard) const {
    const TensorEntry& expected = tensors_[tensor];
    std::shared_ptr<const TensorFile> file = opened(shard.source);
    const auto refuse = [&](const std::string& what) {
        throw FileError(file->path(), "tensor '" + expected.name + "': " + what + " where " + path_.string() +
                                          " says " + std::string(info(expected.dtype).name) + " of shape " +
                                          text_of(shard.box.sizes));
    };
    if (shard.tensor >= file->tensors().size()) refuse("there is no shard");
    const TensorEntry& entry = file->tensors()[shard.tensor];
    if (entry.dtype != expected.dtype || entry.shape != shard.box.sizes)
        refuse("the shard is " + std::string(info(entry.dtype).name) + " of shape " + text_of(entry.shape));
    return file;
}

template <class Read>
void JoinedFile::fill(std::size_t tensor, std::uint64_t begin, std::span<std::byte> out, const Read& read) const {
    const auto item = static_cast<std::uint64_t>(info(tensors_[tensor].dtype).bits / 8);
    const std::uint64_t end = begin + out.size() / item;
    const auto part = [&](std::span<std::byte> bytes, std::uint64_t at, std::uint64_t count) {
        return bytes.subspan(static_cast<std::size_t>(at * item), static_cast<std::size_t>(count * item));
    };
    std::vector<std::byte> scratch;
    for (std::size_t i = 0; i < shards_[tensor].size(); ++i) {
        const PlacedBox& box = shards_[tensor][i].box;
        if (box.position(0) >= end) break;
        const std::uint64_t first = box.rank(begin), last = box.rank(end), run = box.run();
        if (first == last) continue;
        if (first / run == (last - 1) / run) { // these elements are neighbours in the tensor, too
            read(i, first * item, part(out, box.position(first) - begin, last - first));
            continue;
        }
        scratch.resize(static_cast<std::size_t>((last - first) * item));
        read(i, first * item, scratch);
        for (std::uint64_t at = first; at < last;) {
            const std::uint64_t n = std::min(run - at % run, last - at);
            std::ranges::copy(part(scratch, at - first, n), part(out, box.position(at) - begin, n).begin());
            at += n;
        }
    }
}

bool JoinedFile::random_access(std::size_t) const { return random_access_; }

void JoinedFile::read_at(std::size_t tensor, std::uint64_t offset, std::span<std::byte> out) const {
    const std::vector<Placed>& shards = shards_[tensor];
    if (shards.empty()) return; // the tensor has no elements, and an element may be less than a byte
    if (shards.size() == 1)     // a whole tensor, perhaps of elements that are smaller than a byte
        return file_of(tensor, shards[0].shard)->read_at(shards[0].shard.tensor, offset, out);
    const auto item = static_cast<std::uint64_t>(info(tensors_[tensor].dtype).bits / 8);
    fill(tensor, offset / item, out, [&](std::size_t i, std::uint64_t at, std::span<std::byte> bytes) {
        const TensorShard& shard = shards[i].shard;
        file_of(tensor, shard)->read_at(shard.tensor, at, bytes);
    });
}

/// Reads the shards of a tensor side by side, each from its first element to its last, so that a shard is opened once,
/// and closed when all of it was read.
class JoinedFile::Stream : public ByteStream {
  public:
    Stream(const JoinedFile& file, std::size_t tensor)
        : file_(file), tensor_(tensor), shards_(file.shards_[tensor].size()) {}

    std::size_t read(std::span<std::byte> out) override {
        if (shards_.empty()) return 0;
        const TensorEntry& entry = file_.tensors_[tensor_];
        const auto item = static_cast<std::uint64_t>(info(entry.dtype).bits / 8);
        const std::span<std::byte> data =
            out.first(std::min<std::uint64_t>(out.size() / item, entry.count - at_) * item);
        file_.fill(tensor_, at_, data,
                   [&](std::size_t i, std::uint64_t, std::span<std::byte> bytes) { read(i, bytes); });
        at_ += data.size() / item;
        return data.size();
    }

  private:
    struct Shard {
        std::shared_ptr<const TensorFile> file;
        std::unique_ptr<ByteStream> bytes;
        std::uint64_t read = 0;
    };

    void read(std::size_t i, std::span<std::byte> bytes) {
        const TensorShard& part = file_.shards_[tensor_][i].shard;
        Shard& shard = shards_[i];
        if (!shard.file) {
            shard.file = file_.file_of(tensor_, part);
            shard.bytes = shard.file->stream(part.tensor);
        }
        const TensorEntry& entry = shard.file->tensors()[part.tensor];
        if (shard.bytes->read(bytes) != bytes.size())
            throw FileError(shard.file->path(), "tensor '" + entry.name + "': ends early");
        shard.read += bytes.size();
        if (shard.read < entry.bytes) return;
        shard.bytes.reset();
        shard.file.reset();
    }

    const JoinedFile& file_;
    std::size_t tensor_;
    std::uint64_t at_ = 0; ///< the next element
    std::vector<Shard> shards_;
};

std::unique_ptr<ByteStream> JoinedFile::stream(std::size_t tensor) const {
    if (random_access_) return TensorFile::stream(tensor);
    return std::make_unique<Stream>(*this, tensor);
}

bool lies_below_folder(const std::filesystem::path& name) {
    return !name.empty() && name.is_relative() && std::find(name.begin(), name.end(), "..") == name.end();
}

std::size_t most_open_files() {
    rlimit limit{};
    const bool known = ::getrlimit(RLIMIT_NOFILE, &limit) == 0;
    return known ? static_cast<std::size_t>(std::min<rlim_t>(limit.rlim_cur / 4, 1024)) : 16;
}

} // namespace amp

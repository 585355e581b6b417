#include <ampscope/sim/base/text.h>
#include <ampscope/sim/io/byte_file.h>
#include <ampscope/sim/io/detail/joined_file.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <system_error>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace amp {

namespace {

std::string one_line(std::string text) {
    constexpr std::size_t limit = 1000;
    if (text.size() > limit) text = text.substr(0, limit) + "...";
    std::ranges::replace_if(
        text, [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
    return text;
}

std::string last_error() { return std::generic_category().message(errno); }

/// Why a path cannot be opened. If it is a link, its target may be what is missing.
std::string reason_for(const std::filesystem::path& path, int error) {
    std::error_code none;
    const std::string target = std::filesystem::read_symlink(path, none).string();
    std::string reason = std::generic_category().message(error);
    if (error == EMFILE) reason += "; raise the limit with ulimit -n";
    return error == ENOENT && !none ? "it is a link to " + target + ", which does not exist" : reason;
}

std::string_view kind_of(mode_t mode) {
    return S_ISDIR(mode)    ? "a folder"
           : S_ISFIFO(mode) ? "a pipe"
           : S_ISSOCK(mode) ? "a socket"
           : S_ISCHR(mode)  ? "a device"
           : S_ISBLK(mode)  ? "a device"
                            : "something else";
}

class RandomAccessStream : public ByteStream {
  public:
    RandomAccessStream(const TensorFile& file, std::size_t tensor) : file_(file), tensor_(tensor) {}

    std::size_t read(std::span<std::byte> out) override {
        const std::uint64_t left = file_.tensors()[tensor_].bytes - offset_;
        const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(out.size(), left));
        file_.read_at(tensor_, offset_, out.first(n));
        offset_ += n;
        return n;
    }

  private:
    const TensorFile& file_;
    std::size_t tensor_;
    std::uint64_t offset_ = 0;
};

/// A part of another stream, what comes before which is read and dropped.
class RangeOfStream : public ByteStream {
  public:
    RangeOfStream(std::unique_ptr<ByteStream> whole, std::uint64_t skipped, std::uint64_t bytes)
        : whole_(std::move(whole)), skipped_(skipped), left_(bytes) {}

    std::size_t read(std::span<std::byte> out) override {
        constexpr std::uint64_t piece = 1 << 18;
        for (std::vector<std::byte> dropped; skipped_ > 0; skipped_ -= dropped.size()) {
            dropped.resize(std::min(skipped_, piece));
            dropped.resize(whole_->read(dropped));
            if (dropped.empty()) return 0;
        }
        const std::size_t n = whole_->read(out.first(std::min<std::uint64_t>(out.size(), left_)));
        left_ -= n;
        return n;
    }

  private:
    std::unique_ptr<ByteStream> whole_;
    std::uint64_t skipped_, left_;
};

} // namespace

FileError::FileError(const std::filesystem::path& file, const std::string& what)
    : std::runtime_error(one_line(file.string()) + ": " + one_line(what)), file_(one_line(file.string())) {}

// O_NONBLOCK: opening a pipe must not wait for a writer; it is refused below.
ByteFile::ByteFile(std::filesystem::path path)
    : path_(std::move(path)), descriptor_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    if (descriptor_ < 0) throw FileError(path_, "cannot open: " + reason_for(path_, errno));
    struct stat status {};
    if (::fstat(descriptor_, &status) != 0 || !S_ISREG(status.st_mode)) {
        ::close(descriptor_);
        throw FileError(path_, std::string(kind_of(status.st_mode)) + ", not a regular file; tensors are read from "
                                                                      "files, at any place of them");
    }
    size_ = static_cast<std::uint64_t>(status.st_size);
}

ByteFile::~ByteFile() { ::close(descriptor_); }

void ByteFile::read_at(std::uint64_t offset, std::span<std::byte> out) const {
    while (!out.empty()) {
        const ssize_t n = ::pread(descriptor_, out.data(), out.size(), static_cast<off_t>(offset));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) throw FileError(path_, "byte " + std::to_string(offset) + ": cannot read: " + last_error());
        if (n == 0)
            throw FileError(path_, "byte " + std::to_string(offset) +
                                       ": the file ends here; it is truncated or still being written");
        offset += static_cast<std::uint64_t>(n);
        out = out.subspan(static_cast<std::size_t>(n));
    }
}

std::string ByteFile::text_at(std::uint64_t offset, std::uint64_t size) const {
    std::string text(size, '\0');
    read_at(offset, std::as_writable_bytes(std::span(text)));
    return text;
}

void swap_bytes(std::span<std::byte> data, std::size_t item) {
    for (std::size_t i = 0; i + item <= data.size(); i += item) std::ranges::reverse(data.subspan(i, item));
}

void FlatTensorFile::read_at(std::size_t tensor, std::uint64_t offset, std::span<std::byte> out) const {
    file_.read_at(begins_[tensor] + offset, out);
    if (swapped_item_ > 1) swap_bytes(out, swapped_item_);
}

std::unique_ptr<ByteStream> TensorFile::stream(std::size_t tensor) const {
    return std::make_unique<RandomAccessStream>(*this, tensor);
}

DistinctElements::DistinctElements(const TensorFile& file, std::size_t tensor)
    : TensorFile(file.path()), file_(file), tensor_(tensor), repeats_(file.tensors()[tensor].repeats) {
    const TensorEntry& all = file.tensors()[tensor];
    const std::uint64_t count = all.count / repeats_;
    tensors_.push_back({.name = all.name,
                        .dtype = all.dtype,
                        .shape = {count},
                        .count = count,
                        .bytes = all.bytes / repeats_,
                        .storage_order = true});
}

TensorRange::TensorRange(const TensorFile& file, std::size_t tensor, std::uint64_t begin, std::uint64_t end)
    : TensorFile(file.path()), file_(file), tensor_(tensor) {
    const TensorEntry& whole = file.tensors()[tensor];
    const auto bits = static_cast<std::uint64_t>(info(whole.dtype).bits);
    first_byte_ = begin * bits / 8;
    tensors_.push_back({.name = whole.name,
                        .dtype = whole.dtype,
                        .shape = {end - begin},
                        .count = end - begin,
                        .bytes = end * bits / 8 - first_byte_,
                        .storage_order = true});
}

std::unique_ptr<ByteStream> TensorRange::stream(std::size_t) const {
    return std::make_unique<RangeOfStream>(file_.stream(tensor_), first_byte_, tensors_[0].bytes);
}

void finish_entry(TensorEntry& entry, const std::filesystem::path& file) {
    constexpr std::uint64_t limit = std::numeric_limits<std::int64_t>::max(); // also bounds file offsets
    const auto bits = static_cast<std::uint64_t>(info(entry.dtype).bits);
    std::uint64_t count = 1;
    const bool empty = std::ranges::find(entry.shape, std::uint64_t{0}) != entry.shape.end();
    for (const std::uint64_t extent : entry.shape) {
        if (!empty && extent > limit / bits / count)
            throw FileError(file, "tensor '" + entry.name + "': its shape has more elements than any file can hold");
        count *= extent;
    }
    entry.count = empty ? 0 : count;
    if (entry.count * bits % 8 != 0)
        throw FileError(file, "tensor '" + entry.name + "': " + plural(entry.count, "element") + " of " +
                                  std::to_string(bits) + " bits: not a whole number of bytes");
    entry.bytes = entry.count * bits / 8;
}

namespace {

bool is_distributed(const std::filesystem::path& path) { return path.filename() == ".metadata"; }

/// The file that names the others of the checkpoint in a folder; the folder itself where ranks wrote safetensors; empty
/// if it holds no checkpoint, or several.
std::filesystem::path checkpoint_in(const std::filesystem::path& folder) {
    std::filesystem::path found;
    std::error_code problem;
    for (std::filesystem::directory_iterator at(folder, problem), end; !problem && at != end; at.increment(problem)) {
        if (!names_files(at->path()) && !is_rank_file(at->path())) continue;
        const std::filesystem::path checkpoint = is_rank_file(at->path()) ? folder : at->path();
        if (!found.empty() && found != checkpoint) return {};
        found = checkpoint;
    }
    return found;
}

} // namespace

bool names_files(const std::filesystem::path& path) { return is_distributed(path) || is_index(path); }

bool is_tensor_file(const std::filesystem::path& path) {
    if (names_files(path)) return true;
    const std::string extension = path.extension().string();
    return extension == ".safetensors" || extension == ".npy" || extension == ".npz" || extension == ".pt" ||
           extension == ".pth";
}

bool may_lack_format(const std::filesystem::path& path) {
    return path.extension() == ".npy" || path.extension() == ".npz";
}

void add_error(std::vector<std::string>& errors, const FileError& error) {
    const std::string begin = error.file() + ": ";
    if (std::ranges::none_of(errors, [&](const std::string& earlier) { return earlier.starts_with(begin); }))
        errors.emplace_back(error.what());
}

std::unique_ptr<TensorFile> open_complete_file(const std::filesystem::path& path, const OpenOptions& options) {
    std::unique_ptr<TensorFile> file = open_tensor_file(path, options);
    if (!file->problems().empty()) throw file->problems().front();
    return file;
}

std::unique_ptr<TensorFile> open_tensor_file(const std::filesystem::path& path, const OpenOptions& options) {
    const std::string extension = path.extension().string();
    if (is_distributed(path)) return open_distributed(path);
    if (is_index(path)) return open_safetensors_index(path);
    if (std::error_code none; std::filesystem::is_directory(path, none))
        if (const std::filesystem::path checkpoint = checkpoint_in(path); !checkpoint.empty())
            return checkpoint == path ? open_sharded_safetensors(path) : open_tensor_file(checkpoint, options);
    if (extension == ".safetensors") return open_safetensors(path);
    if (extension == ".npy") return open_npy(path, options);
    if (extension == ".npz") return open_npz(path, options);
    if (extension == ".pt" || extension == ".pth") return open_pt({.path = path});
    if (extension == ".distcp")
        throw FileError(path,
                        "a part of a distributed checkpoint, whose .metadata says what is in it; name its folder");
    return open_raw(path, options);
}

} // namespace amp

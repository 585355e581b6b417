#include <ampscope/sim/io/write.h>

#include <ampscope/sim/io/byte_file.h>
#include <ampscope/sim/io/detail/npy.h>

#include <algorithm>
#include <cerrno>
#include <regex>
#include <set>
#include <system_error>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

namespace amp {

namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const fs::path& path, const std::string& what) {
    throw FileError(path, what + ": " + std::generic_category().message(errno));
}

/// A rename survives a crash only after its folder was synced. If that fails, it is left to the system.
void sync_folder(const fs::path& file) {
    const fs::path folder = file.has_parent_path() ? file.parent_path() : fs::path(".");
    const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0) return;
    ::fsync(descriptor);
    ::close(descriptor);
}

std::string little_endian(std::uint64_t value, int bytes) {
    std::string text;
    for (int i = 0; i < bytes; ++i) text.push_back(static_cast<char>(value >> (8 * i) & 0xff));
    return text;
}

/// The header, padded with spaces so that the data begin at a multiple of 8.
std::string safetensors_header(const fs::path& path, const std::vector<TensorEntry>& tensors,
                               const std::map<std::string, std::string>& metadata) {
    nlohmann::ordered_json header = nlohmann::ordered_json::object();
    if (!metadata.empty()) header["__metadata__"] = metadata;
    std::uint64_t offset = 0;
    std::set<std::string_view> names{"__metadata__"};
    for (const TensorEntry& tensor : tensors) {
        if (!names.insert(tensor.name).second)
            throw FileError(path, "tensor '" + tensor.name + "': safetensors cannot hold two of this name; rename one");
        header[tensor.name] = {{"dtype", info(tensor.dtype).name},
                               {"shape", tensor.shape},
                               {"data_offsets", {offset, offset + tensor.bytes}}};
        offset += tensor.bytes;
    }
    std::string text;
    try {
        text = header.dump();
    } catch (const nlohmann::json::type_error&) {
        throw FileError(path, "a tensor's name or the metadata is not UTF-8, which safetensors requires; rename it");
    }
    text.resize((text.size() + 7) / 8 * 8, ' ');
    return little_endian(text.size(), 8) + text;
}

/// The text of a sealed file after the length of its header; the digits of the fingerprint follow.
constexpr std::string_view seal = R"({"__metadata__":{"fingerprint":")";
constexpr std::uint64_t seal_digits = 8 + seal.size();
const std::string no_digits(16, '0');

/// Completes the entries. Returns the total size in bytes.
std::uint64_t finish_entries(const fs::path& path, std::vector<TensorEntry>& tensors) {
    std::uint64_t bytes = 0;
    for (TensorEntry& tensor : tensors) {
        finish_entry(tensor, path);
        bytes += tensor.bytes;
    }
    return bytes;
}

} // namespace

std::string npy_header(const fs::path& path, const TensorEntry& tensor) {
    const DTypeInfo& type = info(tensor.dtype);
    if (type.bits < 8)
        throw FileError(path, std::string(type.name) +
                                  " elements are smaller than a byte, which .npy cannot hold; write .safetensors");
    const std::string size = std::to_string(type.bits / 8);
    const std::string descr =
        (type.bits == 8 ? "|" : "<") + (type.numpy.empty() ? "V" + size : std::string(type.numpy));
    std::string shape;
    for (const std::uint64_t extent : tensor.shape) shape += (shape.empty() ? "" : ", ") + std::to_string(extent);
    if (tensor.shape.size() == 1) shape += ",";
    std::string text = "{'descr': '" + descr + "', 'fortran_order': False, 'shape': (" + shape + "), }";
    constexpr std::size_t preamble = 10;
    text.resize((preamble + text.size() + 1 + 63) / 64 * 64 - preamble, ' ');
    text.back() = '\n';
    if (text.size() > 65535) throw FileError(path, "too many dimensions for .npy; write .safetensors");
    return "\x93NUMPY" + little_endian(1, 2) + little_endian(text.size(), 2) + text;
}

fs::path target_of(const fs::path& path) {
    constexpr int most_links = 40; // as many as Linux follows
    std::error_code none;
    fs::path target = path;
    for (int i = 0; i < most_links && fs::is_symlink(fs::symlink_status(target, none)); ++i)
        target = target.parent_path() / fs::read_symlink(target, none);
    return target;
}

namespace {

/// What an error says of a path that is a link.
std::string link_text(const fs::path& path) {
    const fs::path target = target_of(path);
    return target == path ? "" : "is a link to " + target.string() + ", which ";
}

/// Throws FileError for what is there and is no file.
void check_replaceable(const fs::path& path) {
    std::error_code none;
    const fs::path target = target_of(path);
    if (fs::is_symlink(fs::symlink_status(target, none))) throw FileError(path, "cannot be written: links in a circle");
    if (fs::is_directory(target, none)) throw FileError(path, link_text(path) + "cannot be written: it is a folder");
    if (fs::exists(target, none) && !fs::is_regular_file(target, none))
        throw FileError(path, link_text(path) + "cannot be written: a pipe or a device cannot be replaced by a file");
}

} // namespace

AtomicFile::AtomicFile(fs::path path) : path_(target_of(path)) {
    check_replaceable(path);
    const std::string what = link_text(path);
    struct stat old {};
    const bool replaces = ::stat(path_.c_str(), &old) == 0;
    if (replaces && ::access(path_.c_str(), W_OK) != 0) fail(path, what + "cannot be written");
    for (int attempt = 0; attempt < 100 && descriptor_ < 0; ++attempt) {
        temporary_ = path_;
        temporary_ += "." + std::to_string(::getpid()) + "-" + std::to_string(attempt) + ".partial";
        descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (descriptor_ < 0 && errno != EEXIST) break;
    }
    if (descriptor_ < 0) fail(path, what + "cannot be written");
    if (replaces) static_cast<void>(::fchmod(descriptor_, old.st_mode & 07777)); // the permissions stay as they were
}

AtomicFile::~AtomicFile() {
    if (descriptor_ < 0) return;
    ::close(descriptor_);
    ::unlink(temporary_.c_str());
}

void AtomicFile::append(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
        const ssize_t n = ::write(descriptor_, bytes.data(), bytes.size());
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) fail(path_, "cannot be written");
        bytes = bytes.subspan(static_cast<std::size_t>(n));
    }
}

void AtomicFile::overwrite(std::uint64_t offset, std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
        const ssize_t n = ::pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) fail(path_, "cannot be written");
        bytes = bytes.subspan(static_cast<std::size_t>(n));
        offset += static_cast<std::uint64_t>(n);
    }
}

void AtomicFile::commit() {
    if (::fsync(descriptor_) != 0) fail(path_, "cannot be written");
    if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail(path_, "cannot be put in place");
    ::close(descriptor_);
    descriptor_ = -1;
    sync_folder(path_);
}

fs::path target_of_partial(const fs::path& file) {
    static const std::regex pattern(R"((.+)\.[0-9]{1,10}-[0-9]{1,2}\.partial)");
    const std::string name = file.filename();
    std::smatch match;
    return name.size() < 300 && std::regex_match(name, match, pattern) ? file.parent_path() / match[1].str()
                                                                       : fs::path();
}

void write_text_file(const fs::path& path, std::string_view text) {
    AtomicFile file(path);
    file.append(std::as_bytes(std::span(text)));
    file.commit();
}

TensorWriter::TensorWriter(const fs::path& path, std::string_view header, std::uint64_t bytes, bool sealed)
    : file_(path), left_(bytes), sealed_(sealed) {
    write(std::as_bytes(std::span(header)));
}

void TensorWriter::write(std::span<const std::byte> bytes) {
    file_.append(bytes);
    if (sealed_) fingerprint_.add(bytes);
}

void TensorWriter::append(std::span<const std::byte> bytes) {
    if (bytes.size() > left_) throw std::logic_error("[TensorWriter] more bytes than the announced tensors have");
    write(bytes);
    left_ -= bytes.size();
}

void TensorWriter::commit() {
    if (left_ != 0)
        throw std::logic_error("[TensorWriter] " + std::to_string(left_) +
                               " bytes of the announced tensors are missing");
    if (const std::string digits = fingerprint_.text(); sealed_)
        file_.overwrite(seal_digits, std::as_bytes(std::span(digits)));
    file_.commit();
}

TensorWriter create_tensor_file(const fs::path& path, std::vector<TensorEntry> tensors,
                                const std::map<std::string, std::string>& metadata) {
    check_replaceable(path); // before its extension, which a pipe need not have
    const std::uint64_t bytes = finish_entries(path, tensors);
    if (path.extension() == ".safetensors") return {path, safetensors_header(path, tensors, metadata), bytes};
    const std::string extension = path.extension(),
                      known = ".safetensors, .npy, or .bin or .raw for the elements of one tensor alone";
    for (const char* other : {".npz", ".pt", ".pth"})
        if (extension == other) throw FileError(path, extension + " files are only read; write " + known);
    if (extension != ".npy" && extension != ".bin" && extension != ".raw")
        throw FileError(path, "unknown extension '" + extension + "' of a tensor file; known: " + known);
    if (tensors.size() != 1)
        throw FileError(path, std::to_string(tensors.size()) +
                                  " tensors do not fit a file of one tensor; write .safetensors");
    return {path, extension == ".npy" ? npy_header(path, tensors[0]) : std::string(), bytes};
}

TensorWriter create_sealed_file(const fs::path& path, std::vector<TensorEntry> tensors,
                                std::map<std::string, std::string> metadata) {
    metadata["fingerprint"] = no_digits;
    const std::uint64_t bytes = finish_entries(path, tensors);
    const std::string header = safetensors_header(path, tensors, metadata);
    if (header.compare(8, seal.size(), seal) != 0)
        throw std::logic_error("[create_sealed_file] expected metadata whose keys follow \"fingerprint\", got " +
                               metadata.begin()->first);
    return {path, header, bytes, true};
}

void check_seal(const fs::path& path) {
    const ByteFile file(path);
    const std::uint64_t digits_end = seal_digits + no_digits.size();
    if (file.size() < digits_end || file.text_at(8, seal.size()) != seal)
        throw FileError(path, "has no fingerprint: it is damaged, or of a version that wrote none");
    const std::string written = file.text_at(seal_digits, no_digits.size());
    const std::string head = file.text_at(0, seal_digits) + no_digits;
    Fingerprint fingerprint;
    fingerprint.add(std::as_bytes(std::span(head)));
    std::vector<std::byte> block(1 << 20);
    for (std::uint64_t at = digits_end; at < file.size(); at += block.size()) {
        block.resize(static_cast<std::size_t>(std::min<std::uint64_t>(block.size(), file.size() - at)));
        file.read_at(at, block);
        fingerprint.add(block);
    }
    if (fingerprint.text() != written)
        throw FileError(path,
                        "is damaged: its fingerprint is " + fingerprint.text() + ", not " + written + " as written");
}

} // namespace amp

#include <ampscope/sim/io/text_file.h>

#include <ampscope/sim/io/tensor_file.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fmt/format.h>
#include <span>

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

namespace amp {

namespace {

/// Why a file of that kind is not read; empty if it is.
std::string_view refusal(mode_t mode, Pipe pipe) {
    if (S_ISREG(mode) || (pipe == Pipe::accepted && S_ISFIFO(mode))) return "";
    if (S_ISDIR(mode)) return "is a folder, not a file";
    return S_ISFIFO(mode) ? "is a pipe, not a regular file" : "is a device, not a regular file";
}

[[noreturn]] void fail(const std::filesystem::path& path) {
    throw FileError(path, fmt::format("cannot be read: {}", std::strerror(errno)));
}

/// Waits for a pipe's writer, which may never come. Returns the number of bytes read into `begin` meanwhile.
std::size_t await_writer(const std::filesystem::path& path, int pipe, std::span<char> begin) {
    using Clock = std::chrono::steady_clock;
    constexpr std::chrono::seconds patience{3};
    for (const Clock::time_point end = Clock::now() + patience; Clock::now() < end;) {
        pollfd events{.fd = pipe, .events = POLLIN, .revents = 0};
        if (::poll(&events, 1, 20) > 0) return 0;                   // bytes are there, or a writer has come and gone
        const ssize_t n = ::read(pipe, begin.data(), begin.size()); // 0 without a writer; an error if nothing has come
        if (n != 0) return static_cast<std::size_t>(std::max<ssize_t>(n, 0));
    }
    throw FileError(path,
                    fmt::format("is a pipe that no program has opened for writing in {} seconds", patience.count()));
}

} // namespace

// The kind is checked before opening: a pipe that is refused must not be waited for. One that is accepted is waited
// for, for a while; O_NONBLOCK is only for opening it.
TextFile::TextFile(std::filesystem::path path, Pipe pipe) : path_(std::move(path)), descriptor_(-1) {
    struct stat status {};
    if (::stat(path_.c_str(), &status) != 0) fail(path_);
    if (const std::string_view why = refusal(status.st_mode, pipe); !why.empty())
        throw FileError(path_, std::string(why));
    descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor_ < 0) fail(path_);
    if (S_ISREG(status.st_mode)) return;
    try {
        read_ = await_writer(path_, descriptor_, buffer_);
    } catch (...) {
        ::close(descriptor_);
        throw;
    }
    setg(buffer_.data(), buffer_.data(), buffer_.data() + read_);
    ::fcntl(descriptor_, F_SETFL, 0);
}

TextFile::~TextFile() { ::close(descriptor_); }

TextFile::int_type TextFile::underflow() {
    ssize_t n = 0;
    do n = ::read(descriptor_, buffer_.data(), buffer_.size());
    while (n < 0 && errno == EINTR);
    if (n < 0) fail(path_);
    read_ += static_cast<std::uint64_t>(n);
    if (read_ > end_)
        throw FileError(path_,
                        fmt::format("byte {}: what begins here is larger than {}", end_ - most_, size_text(most_)));
    setg(buffer_.data(), buffer_.data(), buffer_.data() + n);
    return n == 0 ? traits_type::eof() : traits_type::to_int_type(buffer_[0]);
}

bool TextFile::next_line(std::string& line) {
    line.clear();
    ended_ = false;
    while (gptr() != egptr() || underflow() != traits_type::eof()) {
        if (line.empty()) ++number_;
        const auto left = static_cast<std::size_t>(egptr() - gptr());
        const char* const end = static_cast<const char*>(std::memchr(gptr(), '\n', left));
        const std::size_t n = end != nullptr ? static_cast<std::size_t>(end - gptr()) : left;
        if (line.size() + n > longest_line)
            throw FileError(path_, fmt::format("line {} is longer than {}", number_, size_text(longest_line)));
        line.append(gptr(), n);
        gbump(static_cast<int>(n + (end != nullptr ? 1 : 0)));
        if (end != nullptr) return true;
    }
    ended_ = true;
    return !line.empty();
}

std::string TextFile::rest(std::uint64_t most) {
    std::string text;
    while (gptr() != egptr() || underflow() != traits_type::eof()) {
        text.append(gptr(), egptr());
        setg(egptr(), egptr(), egptr());
        if (text.size() > most) throw FileError(path_, fmt::format("is larger than {}", size_text(most)));
    }
    return text;
}

std::string size_text(std::uint64_t bytes) {
    return bytes % (1 << 20) == 0 ? fmt::format("{} MiB", bytes >> 20) : fmt::format("{} bytes", bytes);
}

bool is_there(const std::filesystem::path& path) {
    std::error_code none;
    return std::filesystem::exists(std::filesystem::symlink_status(path, none));
}

void require_there(const std::filesystem::path& path) {
    std::error_code none;
    if (!std::filesystem::exists(path, none))
        throw FileError(path, is_there(path) ? "is a link to nothing" : "does not exist");
}

bool is_pipe(const std::filesystem::path& path) {
    struct stat status {};
    return ::stat(path.c_str(), &status) == 0 && S_ISFIFO(status.st_mode);
}

} // namespace amp

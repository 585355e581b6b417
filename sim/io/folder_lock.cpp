#include <ampscope/sim/io/folder_lock.h>

#include <ampscope/sim/io/tensor_file.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace amp {

namespace {

namespace fs = std::filesystem;

std::string reason() { return std::generic_category().message(errno); }

/// The process that the lock file names, as "process 17 on host".
std::string holder(int descriptor) {
    std::array<char, 100> text{};
    const ssize_t n = ::pread(descriptor, text.data(), text.size(), 0);
    std::string words(text.data(), n > 0 ? static_cast<std::size_t>(n) : 0);
    words.resize(std::min(words.find('\n'), words.size()));
    return words.empty() ? "another process" : words;
}

std::string this_process() {
    std::array<char, 65> host{};
    ::gethostname(host.data(), host.size() - 1);
    return "process " + std::to_string(::getpid()) + " on " + host.data() + "\n";
}

/// Whether the path still leads to the open file: a holder removes its lock file before it releases the lock.
bool is_still(const fs::path& path, int descriptor) {
    struct stat open {
    }, named{};
    return ::fstat(descriptor, &open) == 0 && ::stat(path.c_str(), &named) == 0 && open.st_dev == named.st_dev &&
           open.st_ino == named.st_ino;
}

} // namespace

FolderLock::FolderLock(fs::path folder)
    : folder_(std::move(folder)), file_(folder_ / ".lock"), owner_(static_cast<int>(::getpid())) {
    try {
        for (int attempt = 0; !take(); ++attempt)
            if (attempt == 100) throw FileError(folder_, "cannot be locked: it is removed again and again");
    } catch (...) {
        release();
        throw;
    }
    const std::string words = this_process();
    if (::ftruncate(descriptor_, 0) != 0 || ::pwrite(descriptor_, words.data(), words.size(), 0) < 0)
        return; // on a full disk the name is missing, but the lock holds
}

FolderLock::~FolderLock() { release(); }

void FolderLock::make_folder() {
    std::vector<fs::path> missing;
    std::error_code error;
    const fs::path whole = fs::absolute(folder_).lexically_normal();
    for (fs::path part = whole; !fs::exists(part, error) && part.has_relative_path(); part = part.parent_path())
        missing.insert(missing.begin(), part);
    for (const fs::path& part : missing) {
        if (fs::create_directory(part, error)) made_.push_back(part);
        if (error && fs::is_symlink(part)) throw FileError(part, "is a link to nothing");
        if (error) throw FileError(folder_, "cannot be made: " + error.message());
    }
}

/// True if the lock is held, or if the file system has no locks; false if an earlier holder has just removed the lock
/// file or its folder.
bool FolderLock::take() {
    make_folder();
    descriptor_ = ::open(file_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (descriptor_ < 0 && errno == ENOENT) return false;
    if (descriptor_ < 0) throw FileError(folder_, "cannot be written: " + reason());
    while (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
        if (errno == EINTR) continue;
        if (errno != EWOULDBLOCK) { // ENOLCK, EOPNOTSUPP, ENOSYS ..., depending on the file system
            warning_ = folder_.string() + ": cannot be locked (" + reason() +
                       "): see to it that no other program records into it";
            return true;
        }
        const std::string who = holder(descriptor_);
        ::close(std::exchange(descriptor_, -1));
        throw FileError(folder_, who + " is recording into it; wait until that has ended, or name another folder");
    }
    if (is_still(file_, descriptor_)) return true;
    ::close(std::exchange(descriptor_, -1));
    return false;
}

void FolderLock::release() noexcept {
    const bool ours = ::getpid() == owner_;
    if (descriptor_ >= 0) {
        if (ours) ::unlink(file_.c_str()); // first, so that whoever opens the path next gets a new file
        ::close(std::exchange(descriptor_, -1));
    }
    for (; ours && !made_.empty(); made_.pop_back()) ::rmdir(made_.back().c_str());
}

} // namespace amp

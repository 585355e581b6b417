// One writer per folder: two processes that record into the same folder would mix their lines.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace amp {

/// Locks a folder for writing by flock() on a file `.lock` in it, which says who holds the lock. The kernel releases
/// the lock when the process ends, in whatever way. Readers need no lock. A folder that was made for the lock is
/// removed again if it is still empty when the lock is released.
class FolderLock {
  public:
    /// Makes the folder if there is none. Throws FileError if it cannot be made or written to, or if it is locked by
    /// another process (which the message names) or by another FolderLock of this one.
    explicit FolderLock(std::filesystem::path folder);
    ~FolderLock();
    FolderLock(const FolderLock&) = delete;
    FolderLock& operator=(const FolderLock&) = delete;

    /// A warning for the user if the file system has no locks, so that other writers are not kept out; else empty.
    [[nodiscard]] const std::string& warning() const { return warning_; }
    /// Does what the destructor does. A forked child closes its copy, but the parent's lock stays.
    void release() noexcept;

  private:
    void make_folder();
    bool take();

    std::filesystem::path folder_, file_;
    std::vector<std::filesystem::path> made_; ///< folders made for the lock, each before those in it
    int descriptor_ = -1, owner_ = 0;         ///< file descriptor, and id of the process that took the lock
    std::string warning_;
};

} // namespace amp

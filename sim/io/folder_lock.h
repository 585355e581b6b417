// One writer a folder: two processes that record into the same folder would mix their lines.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace amp {

/// Holds a folder for writing, by flock() on a file `.lock` in it that says who holds it. The kernel releases the lock
/// when the process dies, however it dies. Who only reads a folder needs none. A folder that was made for the lock and
/// is still empty when the lock is released is removed again.
class FolderLock {
  public:
    /// Makes the folder if there is none. Throws FileError if it cannot be made or written, or if another process, or
    /// another FolderLock of this one, holds it; the message names that process.
    explicit FolderLock(std::filesystem::path folder);
    ~FolderLock();
    FolderLock(const FolderLock&) = delete;
    FolderLock& operator=(const FolderLock&) = delete;

    /// What the user should be told: the file system has no locks, so that nothing keeps others out. Else empty.
    [[nodiscard]] const std::string& warning() const { return warning_; }
    /// As the destructor does it. In a child that a fork made, the parent's lock stays.
    void release() noexcept;

  private:
    void make_folder();
    bool take();

    std::filesystem::path folder_, file_;
    std::vector<std::filesystem::path> made_; ///< folders, each before those in it
    int descriptor_ = -1, owner_ = 0;         ///< a process
    std::string warning_;
};

} // namespace amp

// Zip archives through libzip, for .npz and .pt: the central directory, and members as streams.
#pragma once

#include <ampscope/sim/io/byte_file.h>

#include <mutex>

struct zip;
struct zip_stat;

namespace amp {

class ZipArchive {
  public:
    struct Member {
        std::string name;
        std::uint64_t size = 0; ///< uncompressed size in bytes, as the central directory claims
        bool stored = false;    ///< not compressed: any part of it can be read by itself
    };

    /// Throws FileError if the range is not a consistent zip archive or two members have the same name.
    explicit ZipArchive(FileRange range);
    ~ZipArchive();

    [[nodiscard]] const std::vector<Member>& members() const { return members_; }
    /// The member's bytes from byte `begin` on, as a stream that is independent of others (so several threads may read
    /// one archive) and valid as long as the archive. A stream that is read to its end checks length and checksum and
    /// throws FileError if either is wrong. A compressed member is inflated from its first byte, or from where an
    /// earlier stream, closed by now, stopped before `begin`: so parts that are read in order are inflated once. The
    /// bytes inflated only to be skipped are limited.
    [[nodiscard]] std::unique_ptr<ByteStream> open(std::size_t member, std::uint64_t begin = 0) const;
    /// A whole member as text; throws FileError if it has more than `limit` bytes.
    [[nodiscard]] std::string read_text(std::size_t member, std::size_t limit) const;

  private:
    struct Discard {
        void operator()(zip* archive) const;
    };
    using Handle = std::unique_ptr<zip, Discard>;
    class Reader;
    class MemberStream;

    [[nodiscard]] Handle take_handle() const;
    void check_size(const ByteFile& file, const struct zip_stat& status) const;
    [[nodiscard]] std::unique_ptr<Reader> reader_before(std::size_t member, std::uint64_t begin) const;
    void leave(std::unique_ptr<Reader> reader) const;

    [[noreturn]] void fail(const std::string& what) const;

    FileRange range_;
    std::vector<Member> members_;
    /// libzip reads the central directory anew for each handle, and a handle serves one thread at a time: unused ones
    /// are kept.
    mutable std::mutex mutex_;
    mutable std::vector<Handle> idle_;
    mutable std::unique_ptr<Reader> left_off_; ///< stopped in the middle of a compressed member
    mutable std::uint64_t skipped_ = 0;        ///< bytes inflated only to reach those behind them
};

} // namespace amp

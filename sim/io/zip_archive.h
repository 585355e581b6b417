// Zip archives through libzip, for .npz and .pt: the central directory, and members as streams.
#pragma once

#include <ampscope/sim/io/tensor_file.h>

#include <mutex>

struct zip;

namespace amp {

class ZipArchive {
  public:
    struct Member {
        std::string name;
        std::uint64_t size = 0; ///< uncompressed, as the central directory claims
    };

    /// Throws FileError if the file is no consistent zip archive or two members have one name.
    explicit ZipArchive(std::filesystem::path path);
    ~ZipArchive();

    [[nodiscard]] const std::vector<Member>& members() const { return members_; }
    /// The member's bytes. Independent of other streams, so several threads may read one archive; valid as long as the
    /// archive. Reading to the end checks length and checksum and throws FileError where either is wrong.
    [[nodiscard]] std::unique_ptr<ByteStream> open(std::size_t member) const;
    /// A whole member as text; throws FileError above `limit` bytes.
    [[nodiscard]] std::string read_text(std::size_t member, std::size_t limit) const;

  private:
    struct Discard {
        void operator()(zip* archive) const;
    };
    using Handle = std::unique_ptr<zip, Discard>;
    class MemberStream;

    [[nodiscard]] Handle take_handle() const;

    std::filesystem::path path_;
    std::vector<Member> members_;
    /// libzip reads the central directory anew for each handle, and a handle serves one thread: idle ones are kept.
    mutable std::mutex mutex_;
    mutable std::vector<Handle> idle_;
};

} // namespace amp

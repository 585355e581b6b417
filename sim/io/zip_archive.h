// Zip archives through libzip, for .npz and .pt: the central directory, and members as streams.
#pragma once

#include <ampscope/sim/io/tensor_file.h>

struct zip;

namespace amp {

class ZipArchive {
  public:
    struct Member {
        std::string name;
        std::uint64_t size = 0; ///< uncompressed, as the central directory claims
    };

    /// Throws FileError if the file is no consistent zip archive.
    explicit ZipArchive(std::filesystem::path path);

    [[nodiscard]] const std::vector<Member>& members() const { return members_; }
    /// The member's bytes. Independent of other streams, so several threads may read one archive. Reading to the end
    /// checks length and checksum and throws FileError where either is wrong.
    [[nodiscard]] std::unique_ptr<ByteStream> open(std::size_t member) const;
    /// A whole member as text; throws FileError above `limit` bytes.
    [[nodiscard]] std::string read_text(std::size_t member, std::size_t limit) const;

  private:
    std::filesystem::path path_;
    std::vector<Member> members_;
};

} // namespace amp

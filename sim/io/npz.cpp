// .npz: a zip archive of .npy members, stored or deflated.
#include <ampscope/sim/io/byte_file.h>
#include <ampscope/sim/io/detail/npy.h>
#include <ampscope/sim/io/detail/zip_archive.h>

namespace amp {

namespace {

/// The elements of a member, without its header, in machine byte order.
class ElementStream : public ByteStream {
  public:
    ElementStream(std::unique_ptr<ByteStream> member, std::size_t swapped_item)
        : member_(std::move(member)), swapped_item_(swapped_item) {}

    std::size_t read(std::span<std::byte> out) override {
        const std::size_t n = member_->read(out);
        if (swapped_item_ > 1) swap_bytes(out.first(n), swapped_item_);
        return n;
    }

  private:
    std::unique_ptr<ByteStream> member_;
    std::size_t swapped_item_;
};

class NpzFile : public TensorFile {
  public:
    NpzFile(const std::filesystem::path& path, const OpenOptions& options)
        : TensorFile(path), archive_({.path = path}) {
        for (std::size_t i = 0; i < archive_.members().size(); ++i) {
            const std::string& name = archive_.members()[i].name;
            if (name.ends_with(".npy")) add_member(i, options);
            else notes_.push_back("member '" + name + "' is no .npy array; skipped");
        }
        if (tensors_.empty()) throw FileError(path, "the archive holds no .npy array");
    }

    [[nodiscard]] bool random_access(std::size_t) const override { return false; }
    void read_at(std::size_t, std::uint64_t, std::span<std::byte>) const override {
        throw std::logic_error("members of .npz files are streams");
    }

    [[nodiscard]] std::unique_ptr<ByteStream> stream(std::size_t tensor) const override {
        std::unique_ptr<ByteStream> member = archive_.open(members_[tensor].index);
        std::vector<std::byte> header(members_[tensor].header_size);
        member->read(header);
        return std::make_unique<ElementStream>(std::move(member), members_[tensor].swapped_item);
    }

  private:
    struct Member {
        std::size_t index, header_size, swapped_item;
    };

    void add_member(std::size_t index, const OpenOptions& options) {
        const ZipArchive::Member& member = archive_.members()[index];
        const std::string where = "member '" + member.name + "': ";
        const auto stream = archive_.open(index);
        std::string header(npy_preamble, '\0');
        const auto bytes = [&header] { return std::as_writable_bytes(std::span(header)); };
        header.resize(stream->read(bytes()));
        const std::size_t size = npy_header_size(bytes(), path_, where);
        if (size > member.size) throw FileError(path_, where + "byte 8: the header reaches beyond the member");
        const std::size_t begun = header.size();
        header.resize(std::max(size, begun));
        stream->read(bytes().subspan(begun));
        NpyHeader parsed = parse_npy_header(std::string_view(header).substr(0, size), options, path_, where);
        parsed.entry.name = member.name.substr(0, member.name.size() - 4);
        if (parsed.entry.bytes != member.size - size)
            throw FileError(path_, where + "shape and dtype take " + std::to_string(parsed.entry.bytes) +
                                       " bytes but the member has " + std::to_string(member.size - size));
        members_.push_back({index, size, parsed.swapped_item()});
        tensors_.push_back(std::move(parsed.entry));
    }

    ZipArchive archive_;
    std::vector<Member> members_;
};

} // namespace

std::unique_ptr<TensorFile> open_npz(const std::filesystem::path& path, const OpenOptions& options) {
    return std::make_unique<NpzFile>(path, options);
}

} // namespace amp

#include <ampscope/sim/io/zip_archive.h>

#include <algorithm>
#include <utility>

#include <zip.h>

namespace amp {

namespace {

struct Discard {
    void operator()(zip_t* archive) const { zip_discard(archive); }
    void operator()(zip_file_t* file) const { zip_fclose(file); }
};
using Archive = std::unique_ptr<zip_t, Discard>;
using File = std::unique_ptr<zip_file_t, Discard>;

Archive open_archive(const std::filesystem::path& path) {
    int code = 0;
    Archive archive(zip_open(path.c_str(), ZIP_RDONLY, &code));
    if (!archive) {
        zip_error_t error;
        zip_error_init_with_code(&error, code);
        const std::string what = zip_error_strerror(&error);
        zip_error_fini(&error);
        throw FileError(path, "cannot be read as a zip archive: " + what);
    }
    return archive;
}

/// Reads up to the end of the member even if the caller stops at its claimed size: libzip compares the checksum there.
class MemberStream : public ByteStream {
  public:
    MemberStream(const std::filesystem::path& path, std::size_t index, std::string name, std::uint64_t size)
        : path_(path), name_(std::move(name)), left_(size), archive_(open_archive(path)),
          file_(zip_fopen_index(archive_.get(), index, 0)) {
        if (!file_) fail(zip_error_strerror(zip_get_error(archive_.get())));
    }

    std::size_t read(std::span<std::byte> out) override {
        const auto wanted = static_cast<std::size_t>(std::min<std::uint64_t>(out.size(), left_));
        std::size_t done = 0;
        while (done < wanted) {
            const std::size_t n = read_some(out.subspan(done, wanted - done));
            if (n == 0) fail("is shorter than the archive claims");
            done += n;
        }
        left_ -= done;
        std::byte extra{};
        if (left_ == 0 && !std::exchange(checked_, true) && read_some({&extra, 1}) != 0) fail("is longer than the archive claims");
        return done;
    }

  private:
    [[noreturn]] void fail(const std::string& what) const { throw FileError(path_, "member '" + name_ + "': " + what); }

    std::size_t read_some(std::span<std::byte> out) {
        const zip_int64_t n = zip_fread(file_.get(), out.data(), out.size());
        if (n < 0) fail(zip_file_strerror(file_.get()));
        return static_cast<std::size_t>(n);
    }

    std::filesystem::path path_;
    std::string name_;
    std::uint64_t left_;
    Archive archive_;
    File file_;
    bool checked_ = false;
};

} // namespace

ZipArchive::ZipArchive(std::filesystem::path path) : path_(std::move(path)) {
    const Archive archive = open_archive(path_);
    const zip_int64_t count = zip_get_num_entries(archive.get(), 0);
    for (zip_uint64_t i = 0; i < static_cast<zip_uint64_t>(count); ++i) {
        zip_stat_t status;
        zip_stat_init(&status);
        const bool known = zip_stat_index(archive.get(), i, 0, &status) == 0 && (status.valid & ZIP_STAT_NAME) != 0 && (status.valid & ZIP_STAT_SIZE) != 0;
        if (!known) throw FileError(path_, "member " + std::to_string(i) + ": the central directory does not say its name and size");
        members_.push_back({status.name, status.size});
    }
}

std::unique_ptr<ByteStream> ZipArchive::open(std::size_t member) const {
    return std::make_unique<MemberStream>(path_, member, members_[member].name, members_[member].size);
}

std::string ZipArchive::read_text(std::size_t member, std::size_t limit) const {
    const Member& m = members_[member];
    if (m.size > limit) throw FileError(path_, "member '" + m.name + "': " + std::to_string(m.size) + " bytes are more than such a member ever has");
    std::string text(m.size, '\0');
    open(member)->read(std::as_writable_bytes(std::span(text)));
    return text;
}

} // namespace amp

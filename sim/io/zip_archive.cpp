#include <ampscope/sim/io/zip_archive.h>

#include <ampscope/sim/io/byte_file.h>

#include <algorithm>
#include <set>
#include <utility>

#include <zip.h>

namespace amp {

void ZipArchive::Discard::operator()(zip* archive) const { zip_discard(archive); }

ZipArchive::Handle ZipArchive::take_handle() const {
    if (const std::lock_guard lock(mutex_); !idle_.empty()) {
        Handle handle = std::move(idle_.back());
        idle_.pop_back();
        return handle;
    }
    int code = 0;
    Handle handle(zip_open(path_.c_str(), ZIP_RDONLY, &code));
    if (!handle) {
        zip_error_t error;
        zip_error_init_with_code(&error, code);
        const std::string what = zip_error_strerror(&error);
        zip_error_fini(&error);
        throw FileError(path_, "cannot be read as a zip archive: " + what + "; is it complete?");
    }
    return handle;
}

/// Reads up to the end of the member even if the caller stops at its claimed size: libzip compares the checksum there.
class ZipArchive::MemberStream : public ByteStream {
  public:
    MemberStream(const ZipArchive& archive, std::size_t index)
        : archive_(archive), member_(archive.members_[index]), left_(member_.size), handle_(archive.take_handle()),
          file_(zip_fopen_index(handle_.get(), index, 0)) {
        if (file_ == nullptr) fail(zip_error_strerror(zip_get_error(handle_.get())));
    }
    ~MemberStream() override {
        zip_fclose(file_);
        const std::lock_guard lock(archive_.mutex_);
        archive_.idle_.push_back(std::move(handle_));
    }
    MemberStream(const MemberStream&) = delete;
    MemberStream& operator=(const MemberStream&) = delete;

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
        if (left_ == 0 && !std::exchange(checked_, true) && read_some({&extra, 1}) != 0)
            fail("is longer than the archive claims");
        return done;
    }

  private:
    [[noreturn]] void fail(const std::string& what) const {
        throw FileError(archive_.path_, "member '" + member_.name + "': " + what);
    }

    std::size_t read_some(std::span<std::byte> out) {
        const zip_int64_t n = zip_fread(file_, out.data(), out.size());
        if (n < 0) fail(zip_file_strerror(file_));
        return static_cast<std::size_t>(n);
    }

    const ZipArchive& archive_;
    const Member& member_;
    std::uint64_t left_;
    Handle handle_;
    zip_file_t* file_;
    bool checked_ = false;
};

ZipArchive::ZipArchive(std::filesystem::path path) : path_(std::move(path)) {
    const ByteFile regular(path_); // a pipe would make libzip wait
    Handle handle = take_handle();
    const zip_int64_t count = zip_get_num_entries(handle.get(), 0);
    std::set<std::string_view> names;
    members_.reserve(static_cast<std::size_t>(count));
    for (zip_uint64_t i = 0; i < static_cast<zip_uint64_t>(count); ++i) {
        zip_stat_t status;
        zip_stat_init(&status);
        const bool known = zip_stat_index(handle.get(), i, 0, &status) == 0 && (status.valid & ZIP_STAT_NAME) != 0 &&
                           (status.valid & ZIP_STAT_SIZE) != 0;
        if (!known)
            throw FileError(path_,
                            "member " + std::to_string(i) + ": the central directory does not say its name and size");
        members_.push_back({status.name, status.size});
        if (!names.insert(members_.back().name).second)
            throw FileError(path_, "member '" + members_.back().name + "': the archive holds two of this name");
    }
    idle_.push_back(std::move(handle));
}

ZipArchive::~ZipArchive() = default;

std::unique_ptr<ByteStream> ZipArchive::open(std::size_t member) const {
    return std::make_unique<MemberStream>(*this, member);
}

std::string ZipArchive::read_text(std::size_t member, std::size_t limit) const {
    const Member& m = members_[member];
    if (m.size > limit)
        throw FileError(path_, "member '" + m.name + "': " + std::to_string(m.size) +
                                   " bytes are more than such a member ever has");
    std::string text;
    read_growing(*open(member), m.size, text);
    return text;
}

} // namespace amp

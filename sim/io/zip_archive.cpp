#include <ampscope/sim/io/detail/zip_archive.h>

#include <ampscope/sim/io/byte_file.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <set>
#include <utility>

#include <zip.h>

namespace amp {

namespace {

/// Limit on bytes inflated only to be skipped: about a minute of work, after which the file is refused.
constexpr std::uint64_t max_skipped = std::uint64_t{16} << 30;

constexpr zip_int64_t max_members = 200'000;

} // namespace

void ZipArchive::Discard::operator()(zip* archive) const { zip_discard(archive); }

ZipArchive::Handle ZipArchive::take_handle() const {
    if (const std::lock_guard lock(mutex_); !idle_.empty()) {
        Handle handle = std::move(idle_.back());
        idle_.pop_back();
        return handle;
    }
    if (range_.length == 0) fail("cannot be read as a zip archive: it is empty"); // libzip would read on
    zip_error_t error;
    zip_error_init(&error);
    zip_source_t* source = zip_source_file_create(
        range_.path.c_str(), range_.begin, range_.length ? static_cast<zip_int64_t>(*range_.length) : -1, &error);
    Handle handle(source == nullptr ? nullptr : zip_open_from_source(source, ZIP_RDONLY, &error));
    if (!handle) {
        const std::string what = zip_error_strerror(&error);
        const int reason = zip_error_code_system(&error);
        if (source != nullptr) zip_source_free(source);
        zip_error_fini(&error);
        if (reason == EMFILE) fail("cannot be opened: too many files are open; raise the limit with ulimit -n");
        fail("cannot be read as a zip archive: " + what + "; is it complete?");
    }
    zip_error_fini(&error);
    return handle;
}

/// An archive that is a part of a file is named by its first byte.
void ZipArchive::fail(const std::string& what) const {
    throw FileError(range_.path, range_.length ? "byte " + std::to_string(range_.begin) + ": " + what : what);
}

/// A member opened at some byte. Reads up to its end even if the caller stops at the claimed size: libzip compares the
/// checksum there.
class ZipArchive::Reader {
  public:
    Reader(const ZipArchive& archive, std::size_t index)
        : archive_(archive), index_(index), handle_(archive.take_handle()),
          file_(zip_fopen_index(handle_.get(), index, 0)) {
        if (file_ == nullptr) fail(zip_error_strerror(zip_get_error(handle_.get())));
    }
    ~Reader() {
        zip_fclose(file_);
        const std::lock_guard lock(archive_.mutex_);
        archive_.idle_.push_back(std::move(handle_));
    }
    Reader(const Reader&) = delete;
    Reader& operator=(const Reader&) = delete;

    [[nodiscard]] std::size_t index() const { return index_; }
    [[nodiscard]] const Member& member() const { return archive_.members_[index_]; }
    [[nodiscard]] std::uint64_t position() const { return position_; }
    [[nodiscard]] std::uint64_t left() const { return member().size - position_; }
    /// Whether it can be read on: no read has failed.
    [[nodiscard]] bool sound() const { return sound_; }

    [[noreturn]] void fail(const std::string& what) const { archive_.fail("member '" + member().name + "': " + what); }

    std::size_t read(std::span<std::byte> out) {
        const auto wanted = static_cast<std::size_t>(std::min<std::uint64_t>(out.size(), left()));
        std::size_t done = 0;
        sound_ = false;
        while (done < wanted) {
            const std::size_t n = read_some(out.subspan(done, wanted - done));
            if (n == 0) fail("is shorter than the archive claims");
            done += n;
        }
        position_ += done;
        std::byte extra{};
        if (left() == 0 && !std::exchange(checked_, true) && read_some({&extra, 1}) != 0)
            fail("is longer than the archive claims");
        sound_ = true;
        return done;
    }

    /// Moves forward to a later byte, by reading what lies between if necessary.
    void skip_to(std::uint64_t begin) {
        if (member().stored && zip_fseek(file_, static_cast<zip_int64_t>(begin), SEEK_SET) == 0) {
            position_ = begin;
            return;
        }
        std::array<std::byte, 1 << 16> scratch;
        while (position_ < begin)
            read(std::span(scratch).first(
                static_cast<std::size_t>(std::min<std::uint64_t>(begin - position_, scratch.size()))));
    }

  private:
    std::size_t read_some(std::span<std::byte> out) {
        const zip_int64_t n = zip_fread(file_, out.data(), out.size());
        if (n < 0) fail(zip_file_strerror(file_));
        return static_cast<std::size_t>(n);
    }

    const ZipArchive& archive_;
    std::size_t index_;
    std::uint64_t position_ = 0;
    Handle handle_;
    zip_file_t* file_;
    bool checked_ = false, sound_ = true;
};

class ZipArchive::MemberStream : public ByteStream {
  public:
    MemberStream(const ZipArchive& archive, std::unique_ptr<Reader> reader)
        : archive_(archive), reader_(std::move(reader)) {}
    ~MemberStream() override { archive_.leave(std::move(reader_)); }
    MemberStream(const MemberStream&) = delete;
    MemberStream& operator=(const MemberStream&) = delete;

    std::size_t read(std::span<std::byte> out) override { return reader_->read(out); }

  private:
    const ZipArchive& archive_;
    std::unique_ptr<Reader> reader_;
};

/// The reader that stopped in this member at `begin` or before it; else a new one at the first byte.
std::unique_ptr<ZipArchive::Reader> ZipArchive::reader_before(std::size_t member, std::uint64_t begin) const {
    std::unique_ptr<Reader> found;
    if (const std::lock_guard lock(mutex_);
        begin > 0 && left_off_ && left_off_->index() == member && left_off_->position() <= begin)
        found = std::move(left_off_);
    return found ? std::move(found) : std::make_unique<Reader>(*this, member);
}

void ZipArchive::leave(std::unique_ptr<Reader> reader) const {
    if (reader->member().stored || !reader->sound() || reader->left() == 0 || reader->position() == 0) return;
    const std::lock_guard lock(mutex_);
    std::swap(left_off_, reader);
}

ZipArchive::ZipArchive(FileRange range) : range_(std::move(range)) {
    const ByteFile regular(range_.path); // refuses pipes, for which libzip would wait
    Handle handle = take_handle();
    const zip_int64_t count = zip_get_num_entries(handle.get(), 0);
    std::set<std::string_view> names;
    if (count > max_members) fail("more than 200,000 members in one archive");
    members_.reserve(static_cast<std::size_t>(count));
    for (zip_uint64_t i = 0; i < static_cast<zip_uint64_t>(count); ++i) {
        zip_stat_t status;
        zip_stat_init(&status);
        const bool known = zip_stat_index(handle.get(), i, 0, &status) == 0 && (status.valid & ZIP_STAT_NAME) != 0 &&
                           (status.valid & ZIP_STAT_SIZE) != 0;
        if (!known) fail("member " + std::to_string(i) + ": the central directory does not say its name and size");
        const bool stored = (status.valid & ZIP_STAT_COMP_METHOD) != 0 && status.comp_method == ZIP_CM_STORE;
        members_.push_back({status.name, status.size, stored});
        check_size(regular, status);
        if (!names.insert(members_.back().name).second)
            fail("member '" + members_.back().name + "': the archive holds two of this name");
    }
    idle_.push_back(std::move(handle));
}

/// Refuses sizes that the bytes in the file cannot inflate to: deflate makes at most 1032 bytes of one (zlib's
/// technical notes); other methods are rare and have no such limit.
void ZipArchive::check_size(const ByteFile& file, const struct zip_stat& status) const {
    if ((status.valid & ZIP_STAT_COMP_SIZE) == 0 || (status.valid & ZIP_STAT_COMP_METHOD) == 0) return;
    const std::uint64_t most = status.comp_method == ZIP_CM_STORE     ? 1
                               : status.comp_method == ZIP_CM_DEFLATE ? 1032
                                                                      : std::uint64_t{1} << 20;
    if (status.comp_size > file.size() || status.size / most > status.comp_size)
        fail("member '" + std::string(status.name) + "': claims " + std::to_string(status.size) +
             " bytes, more than its " + std::to_string(status.comp_size) + " in the file can hold");
}

ZipArchive::~ZipArchive() = default;

std::unique_ptr<ByteStream> ZipArchive::open(std::size_t member, std::uint64_t begin) const {
    std::unique_ptr<Reader> reader = reader_before(member, begin);
    if (begin > reader->position()) {
        if (!members_[member].stored) {
            const std::lock_guard lock(mutex_);
            skipped_ += begin - reader->position();
            if (skipped_ > max_skipped)
                reader->fail("is compressed, and its views take too long to reach: more than 16 GiB were inflated for "
                             "it in vain; save it uncompressed, as torch.save does");
        }
        reader->skip_to(begin);
    }
    return std::make_unique<MemberStream>(*this, std::move(reader));
}

std::string ZipArchive::read_text(std::size_t member, std::size_t limit) const {
    const Member& m = members_[member];
    if (m.size > limit)
        fail("member '" + m.name + "': " + std::to_string(m.size) + " bytes are more than such a member ever has");
    std::string text;
    read_growing(*open(member), m.size, text);
    return text;
}

} // namespace amp

// Archives of arrays, made in memory by libzip.
#include <ampscope/sim/io/detail/npy.h>
#include <ampscope/sim/io/write.h>

#include <memory>
#include <zip.h>

namespace amp {

namespace {

/// The bytes of an archive while libzip makes it.
class Archive {
  public:
    explicit Archive(const std::filesystem::path& path) : path_(path) {
        zip_error_t error;
        zip_error_init(&error);
        bytes_.reset(zip_source_buffer_create(nullptr, 0, 0, &error));
        if (bytes_) zip_source_keep(bytes_.get()); // the archive owns one reference until it is closed
        if (bytes_) archive_.reset(zip_open_from_source(bytes_.get(), ZIP_TRUNCATE, &error));
        const std::string what = zip_error_strerror(&error);
        zip_error_fini(&error);
        if (!archive_) fail(what);
    }

    /// Adds a member; its bytes must live until take().
    void add(const std::string& name, std::string_view bytes) {
        zip_source_t* const source = zip_source_buffer(archive_.get(), bytes.data(), bytes.size(), 0);
        if (source == nullptr) fail(zip_strerror(archive_.get()));
        const zip_int64_t index = zip_file_add(archive_.get(), name.c_str(), source, ZIP_FL_ENC_UTF_8);
        if (index < 0) {
            zip_source_free(source);
            fail("member '" + name + "': " + zip_strerror(archive_.get()));
        }
        constexpr zip_uint16_t first_day = 0x21; // 1980-01-01, the earliest date that an archive can hold
        zip_set_file_compression(archive_.get(), static_cast<zip_uint64_t>(index), ZIP_CM_STORE, 0);
        zip_file_set_dostime(archive_.get(), static_cast<zip_uint64_t>(index), 0, first_day, 0);
    }

    /// The finished archive.
    std::string take() {
        if (zip_close(archive_.get()) != 0) fail(zip_strerror(archive_.get()));
        static_cast<void>(archive_.release()); // closed
        zip_stat_t status;
        zip_stat_init(&status);
        if (zip_source_open(bytes_.get()) != 0 || zip_source_stat(bytes_.get(), &status) != 0)
            fail(zip_error_strerror(zip_source_error(bytes_.get())));
        std::string text(status.size, '\0');
        if (zip_source_read(bytes_.get(), text.data(), text.size()) != static_cast<zip_int64_t>(text.size()))
            fail(zip_error_strerror(zip_source_error(bytes_.get())));
        zip_source_close(bytes_.get());
        return text;
    }

  private:
    struct Discard {
        void operator()(zip_t* archive) const { zip_discard(archive); }
        void operator()(zip_source_t* source) const { zip_source_free(source); }
    };
    [[noreturn]] void fail(const std::string& what) const { throw FileError(path_, "cannot be written: " + what); }

    const std::filesystem::path& path_;
    std::unique_ptr<zip_source_t, Discard> bytes_;
    std::unique_ptr<zip_t, Discard> archive_;
};

} // namespace

std::string npz_archive(const std::filesystem::path& path, const std::vector<NpzArray>& arrays) {
    std::vector<std::string> members;
    members.reserve(arrays.size());
    for (const NpzArray& array : arrays) {
        members.push_back(npy_header(path, array.entry));
        members.back().append(reinterpret_cast<const char*>(array.bytes.data()), array.bytes.size());
    }
    Archive archive(path);
    for (std::size_t i = 0; i < arrays.size(); ++i) archive.add(arrays[i].entry.name + ".npy", members[i]);
    if (!arrays.empty()) return archive.take();
    throw FileError(path, "cannot be written: there are no arrays for it");
}

} // namespace amp

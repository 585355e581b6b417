#include <ampscope/sim/io/detail/npy.h>

#include <ampscope/sim/io/byte_file.h>

#include <algorithm>
#include <charconv>
#include <functional>

namespace amp {

namespace {

/// Reads the dict literal from left to right; anything unexpected is an error that names the byte.
class DictReader {
  public:
    DictReader(std::string_view text, std::size_t offset, std::function<void(std::size_t, std::string)> fail)
        : text_(text), offset_(offset), fail_(std::move(fail)) {}

    void read(std::string& descr, bool& fortran, std::vector<std::uint64_t>& shape) {
        expect('{');
        int seen = 0;
        while (!accept('}')) {
            const std::string key = quoted();
            expect(':');
            const int bit = key == "descr" ? 1 : key == "fortran_order" ? 2 : key == "shape" ? 4 : 0;
            if (bit == 0 || (seen & bit) != 0) fail("unexpected key '" + key + "'");
            seen |= bit;
            if (bit == 1) descr = quoted();
            if (bit == 2) fortran = truth();
            if (bit == 4) shape = tuple();
            if (!accept(',')) {
                expect('}');
                break;
            }
        }
        if (seen != 7) fail("needs descr, fortran_order and shape");
        while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
        if (at_ != text_.size()) fail("something follows the dict");
    }

  private:
    [[noreturn]] void fail(std::string what) const {
        fail_(offset_ + at_, std::move(what));
        throw std::logic_error("fail_ returns");
    }
    void skip_spaces() {
        while (at_ < text_.size() && text_[at_] == ' ') ++at_;
    }
    bool accept(char c) {
        skip_spaces();
        if (at_ == text_.size() || text_[at_] != c) return false;
        ++at_;
        return true;
    }
    void expect(char c) {
        if (!accept(c)) fail(std::string("expected '") + c + "' in the header's dict");
    }
    std::string quoted() {
        skip_spaces();
        const char quote = at_ < text_.size() ? text_[at_] : '\0';
        if (quote == '[' || quote == '(')
            fail("structured dtypes are not supported; save each field as an array of its own");
        if (quote != '\'' && quote != '"') fail("expected a string in the header's dict");
        const std::size_t end = text_.find(quote, at_ + 1);
        if (end == std::string_view::npos) fail("a string does not end");
        std::string value(text_.substr(at_ + 1, end - at_ - 1));
        at_ = end + 1;
        return value;
    }
    bool truth() {
        skip_spaces();
        for (const bool value : {true, false}) {
            const std::string_view word = value ? "True" : "False";
            if (text_.substr(at_).starts_with(word)) {
                at_ += word.size();
                return value;
            }
        }
        fail("fortran_order must be True or False");
    }
    std::vector<std::uint64_t> tuple() {
        std::vector<std::uint64_t> shape;
        expect('(');
        while (!accept(')')) {
            skip_spaces();
            std::uint64_t extent = 0;
            const auto [end, problem] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), extent);
            if (problem != std::errc{}) fail("shape must be a tuple of non-negative integers below 2^64");
            at_ = static_cast<std::size_t>(end - text_.data());
            shape.push_back(extent);
            if (!accept(',')) {
                if (shape.size() == 1) fail("expected ',': (3) is a number in Python, (3,) a shape");
                expect(')');
                break;
            }
        }
        return shape;
    }

    std::string_view text_;
    std::size_t offset_; ///< offset of text_ in the file
    std::size_t at_ = 0;
    std::function<void(std::size_t, std::string)> fail_;
};

/// The dtype for '<f4' and the like, or the one that the user has given.
DType npy_dtype(const std::string& descr, const OpenOptions& options, const std::function<void(std::string)>& fail) {
    const std::string_view type = std::string_view(descr).substr(std::min<std::size_t>(1, descr.size()));
    if (type.starts_with('O')) fail("holds Python objects (pickle), which are never loaded; save a numeric array");
    const bool lost = type.starts_with('V') || type == "f1"; // ml_dtypes: '<V2' is bfloat16, '|V1' and '<f1' are float8
    if (options.as && (lost || type == "u1" || type == "u2" || type == "i1" || type == "i2")) {
        if (std::string_view(std::to_string(info(*options.as).bits / 8)) != type.substr(1))
            fail("elements of " + descr + " cannot be read as " + std::string(info(*options.as).name));
        return *options.as;
    }
    if (lost)
        fail("dtype '" + descr +
             "' lost its number format (bfloat16 or float8 saved by NumPy); say which with --as, such as --as bf16");
    const auto* row =
        std::ranges::find_if(dtypes, [&](const DTypeInfo& d) { return !d.numpy.empty() && d.numpy == type; });
    if (type == "c16")
        fail("dtype '" + descr + "' (complex128) is not read; convert to complex64, or save .real and .imag");
    if (row == dtypes.end()) fail("dtype '" + descr + "' is not supported; convert to float32 or float64");
    return row->dtype;
}

class NpyFile : public FlatTensorFile {
  public:
    NpyFile(const std::filesystem::path& path, const OpenOptions& options) : FlatTensorFile(path) {
        std::array<std::byte, npy_preamble> preamble{};
        const auto first = std::span(preamble).first(std::min<std::uint64_t>(preamble.size(), file_.size()));
        file_.read_at(0, first);
        const std::size_t header_size = npy_header_size(first, path, "");
        if (header_size > file_.size()) throw FileError(path, "byte 8: the header reaches beyond the file");
        NpyHeader header = parse_npy_header(file_.text_at(0, header_size), options, path, "");
        header.entry.name = path.stem().string();
        const std::uint64_t data = file_.size() - header_size;
        if (header.entry.bytes != data)
            throw FileError(path, "shape and dtype take " + std::to_string(header.entry.bytes) +
                                      " bytes of data but the file has " + std::to_string(data) +
                                      (header.entry.bytes > data ? "; it is truncated" : "; something is appended"));
        swapped_item_ = header.swapped_item();
        tensors_.push_back(std::move(header.entry));
        begins_.push_back(header_size);
    }
};

} // namespace

std::size_t npy_header_size(std::span<const std::byte> preamble, const std::filesystem::path& file,
                            const std::string& where) {
    constexpr std::string_view magic = "\x93NUMPY";
    const auto byte = [&](std::size_t i) { return std::to_integer<std::size_t>(preamble[i]); };
    bool good = preamble.size() >= 10;
    for (std::size_t i = 0; good && i < magic.size(); ++i) good = byte(i) == static_cast<unsigned char>(magic[i]);
    if (!good) throw FileError(file, where + "byte 0: not a .npy array (no \\x93NUMPY)");
    const std::size_t version = byte(6);
    if (version < 1 || version > 3 || byte(7) != 0)
        throw FileError(file, where + "byte 6: .npy version " + std::to_string(version) + "." +
                                  std::to_string(byte(7)) + " is unknown");
    if (version > 1 && preamble.size() < 12) throw FileError(file, where + "byte 8: the header is truncated");
    const std::size_t start = version == 1 ? 10 : 12;
    std::size_t size = byte(8) | byte(9) << 8;
    if (version > 1) size |= byte(10) << 16 | byte(11) << 24;
    if (size > 65535)
        throw FileError(file, where + "byte 8: a header of " + std::to_string(size) + " bytes is no array's");
    return start + size;
}

NpyHeader parse_npy_header(std::string_view header, const OpenOptions& options, const std::filesystem::path& file,
                           const std::string& where) {
    const std::size_t start = header[6] == 1 ? 10 : 12;
    NpyHeader result;
    std::string descr;
    bool fortran = false;
    DictReader(header.substr(start), start, [&](std::size_t byte, const std::string& what) {
        throw FileError(file, where + "byte " + std::to_string(byte) + ": " + what);
    }).read(descr, fortran, result.entry.shape);

    if (descr.empty() || std::string_view("<>|=").find(descr.front()) == std::string_view::npos)
        throw FileError(file, where + "dtype '" + descr + "' has no byte order");
    result.entry.dtype =
        npy_dtype(descr, options, [&](const std::string& what) { throw FileError(file, where + what); });
    result.big_endian = descr.front() == '>';
    result.entry.storage_order = fortran && result.entry.shape.size() > 1;
    // for messages
    result.entry.name = where.empty() ? file.stem().string() : where.substr(8, where.size() - 11);
    finish_entry(result.entry, file);
    return result;
}

std::unique_ptr<TensorFile> open_npy(const std::filesystem::path& path, const OpenOptions& options) {
    return std::make_unique<NpyFile>(path, options);
}

} // namespace amp

#include <ampscope/sim/analysis/conformance/case_file.h>

#include <ampscope/sim/analysis/conformance/detail/header.h>
#include <ampscope/sim/base/parallel.h>
#include <ampscope/sim/io/text_file.h>
#include <ampscope/sim/io/write.h>

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <iterator>
#include <mutex>

namespace amp::conformance {

namespace {

void append_hex(std::string& text, std::uint32_t word, int digits) {
    for (int i = digits - 1; i >= 0; --i) text += "0123456789ABCDEF"[word >> (4 * i) & 15];
}

int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
}

/// What is wrong with a word of a column; empty if nothing is.
std::string fault(const Column& column, std::uint32_t word) {
    const std::uint32_t code = word >> column.shift();
    if (code << column.shift() == word && (code & ~column.mask()) == 0) return {};
    return fmt::format("{}: {:0{}X} is no {}", column.name, word, column.digits(),
                       column.format      ? fmt::format("code of {}", column.format->name)
                       : column.last == 1 ? "0 or 1"
                                          : fmt::format("number from 0 to {}", column.last));
}

/// The words of a line, one after another. Throws std::invalid_argument.
class Words {
  public:
    explicit Words(std::string_view line) : rest_(line) {}

    std::uint32_t take(std::string_view name, int digits) {
        rest_.remove_prefix(std::min(rest_.find_first_not_of(' '), rest_.size()));
        const std::string_view text = rest_.substr(0, rest_.find(' '));
        rest_.remove_prefix(text.size());
        if (text.empty()) throw std::invalid_argument(fmt::format("ends before {}", name));
        std::uint32_t word = 0;
        for (const char c : text) {
            const int digit = hex_digit(c);
            if (digit < 0 || text.size() != static_cast<std::size_t>(digits))
                throw std::invalid_argument(
                    fmt::format("{}: expected {} hexadecimal digits, got '{}'", name, digits, text));
            word = word << 4 | static_cast<std::uint32_t>(digit);
        }
        return word;
    }
    void end() const {
        if (rest_.find_first_not_of(' ') != std::string_view::npos)
            throw std::invalid_argument("has more words than the header has columns");
    }

  private:
    std::string_view rest_;
};

void read_line(std::string_view line, const std::vector<Column>& columns, Cases& cases) {
    Words words(line);
    for (const Column& column : columns)
        for (std::uint64_t i = 0; i < column.words; ++i) {
            const std::uint32_t word = words.take(column.name, column.digits());
            if (const std::string wrong = fault(column, word); !wrong.empty()) throw std::invalid_argument(wrong);
            (column.name == "result" ? cases.results : cases.operands).push_back(word >> column.shift());
        }
    if (has_flags(cases.question)) {
        const std::uint32_t flags = words.take("flags", 2);
        if (flags > 0x1f) throw std::invalid_argument(fmt::format("flags: {:02X} has more than five bits", flags));
        cases.flags.push_back(static_cast<std::uint8_t>(flags));
    }
    words.end();
}

CaseFile read_text(const std::filesystem::path& path) {
    TextFile file(path, Pipe::accepted);
    detail::HeaderReader header;
    CaseFile result;
    std::vector<Column> columns;
    std::string text;
    while (file.next_line(text)) {
        std::string_view line = text;
        if (line.ends_with('\r')) line.remove_suffix(1);
        try {
            if (line.starts_with('#')) {
                if (header.complete()) continue; // a remark
                header.line(line.substr(std::min(line.find_first_not_of("# "), line.size())));
                if (!header.complete()) continue;
                result.cases.question = header.question();
                columns = columns_of(header.question());
            } else if (!line.empty()) {
                if (!header.complete()) throw std::invalid_argument("comes before the header has named its columns");
                read_line(line, columns, result.cases);
                result.lines.push_back(static_cast<std::uint64_t>(file.number()));
            }
        } catch (const std::invalid_argument& error) {
            throw FileError(path, fmt::format("line {}: {}", file.number(), error.what()));
        }
    }
    if (result.lines.empty()) throw FileError(path, "has no cases");
    return result;
}

DType dtype_of(const Column& column) {
    const int bits = 4 * column.digits();
    return bits <= 8 ? DType::u8 : bits <= 16 ? DType::u16 : DType::u32;
}

void append_word(std::vector<std::byte>& bytes, std::uint32_t word, int size) {
    for (int i = 0; i < size; ++i) bytes.push_back(static_cast<std::byte>(word >> (8 * i) & 0xff));
}

/// An array of an archive, as words.
std::vector<std::uint32_t> read_array(const TensorFile& file, std::string_view name, DType dtype,
                                      const std::vector<std::uint64_t>& shape) {
    const auto entry = std::ranges::find(file.tensors(), name, &TensorEntry::name);
    if (entry == file.tensors().end()) throw FileError(file.path(), fmt::format("lacks the array {}", name));
    if (entry->dtype != dtype || entry->storage_order || entry->shape.size() != shape.size() ||
        !std::ranges::equal(entry->shape, shape, [](auto have, auto want) { return want == 0 || have == want; }))
        throw FileError(file.path(), fmt::format("{}: expected {} numbers of the type {} for each case", name,
                                                 shape.size() == 1 ? 1 : shape[1], info(dtype).name));
    const auto size = static_cast<std::size_t>(info(dtype).bits / 8);
    std::vector<std::byte> bytes(entry->bytes);
    const auto stream = file.stream(static_cast<std::size_t>(entry - file.tensors().begin()));
    if (stream->read(bytes) != bytes.size()) throw FileError(file.path(), fmt::format("{}: ends early", name));
    std::vector<std::uint32_t> words(entry->count);
    for (std::size_t i = 0; i < bytes.size(); ++i)
        words[i / size] |= std::to_integer<std::uint32_t>(bytes[i]) << (8 * (i % size));
    return words;
}

Question read_header(const TensorFile& file) {
    std::string text;
    for (const std::uint32_t c : read_array(file, "header", DType::u8, {0})) text += static_cast<char>(c);
    detail::HeaderReader header;
    for (int number = 1; !text.empty() && !header.complete(); ++number) {
        const std::size_t end = std::min(text.find('\n'), text.size());
        try {
            header.line(std::string_view(text).substr(0, end));
        } catch (const std::invalid_argument& error) {
            throw FileError(file.path(), fmt::format("header: line {}: {}", number, error.what()));
        }
        text.erase(0, end + 1);
    }
    if (!header.complete()) throw FileError(file.path(), "header: lacks the key columns");
    return header.question();
}

CaseFile read_npz(const std::filesystem::path& path) {
    const std::unique_ptr<TensorFile> file = open_tensor_file(path);
    CaseFile result{.cases = {.question = read_header(*file)}};
    Cases& cases = result.cases;
    const std::vector<Column> columns = columns_of(cases.question);
    std::vector<std::vector<std::uint32_t>> arrays;
    std::uint64_t count = 0; // of the first array; the others must have as many
    for (const Column& column : columns) {
        std::vector<std::uint64_t> shape = {count};
        if (column.words > 1) shape.push_back(column.words);
        arrays.push_back(read_array(*file, column.name, dtype_of(column), shape));
        count = arrays.back().size() / column.words;
        for (std::size_t i = 0; i < arrays.back().size(); ++i)
            if (const std::string wrong = fault(column, arrays.back()[i]); !wrong.empty())
                throw FileError(path, fmt::format("case {}: {}", i / column.words, wrong));
    }
    if (count == 0) throw FileError(path, "has no cases");
    for (std::uint64_t i = 0; i < count; ++i)
        for (std::size_t c = 0; c < columns.size(); ++c)
            for (std::uint64_t w = 0; w < columns[c].words; ++w)
                (columns[c].name == "result" ? cases.results : cases.operands)
                    .push_back(arrays[c][i * columns[c].words + w] >> columns[c].shift());
    if (has_flags(cases.question))
        for (const std::uint32_t flags : read_array(*file, "flags", DType::u8, {count}))
            cases.flags.push_back(static_cast<std::uint8_t>(flags));
    return result;
}

} // namespace

void write_text(const Cases& cases, const std::function<void(std::string_view)>& sink) {
    std::string text;
    const std::string header = header_of(cases.question);
    for (std::string_view rest = header; !rest.empty();) {
        const std::size_t end = rest.find('\n') + 1;
        text += "# ";
        text += rest.substr(0, end);
        rest.remove_prefix(end);
    }
    const std::vector<Column> columns = columns_of(cases.question);
    const std::uint64_t operands = operands_of(cases.question);
    for (std::size_t i = 0; i < cases.size(); ++i) {
        std::size_t at = i * operands;
        for (const Column& column : columns)
            for (std::uint64_t w = 0; w < column.words; ++w) {
                const std::uint32_t code = column.name == "result" ? cases.results[i] : cases.operands[at++];
                append_hex(text, code << column.shift(), column.digits());
                text += ' ';
            }
        if (has_flags(cases.question)) append_hex(text, cases.flags[i], 2);
        else text.pop_back();
        text += '\n';
        if (text.size() < (1 << 16)) continue;
        sink(text);
        text.clear();
    }
    sink(text);
}

std::string npz_of(const std::filesystem::path& path, const Cases& cases) {
    const std::string header = header_of(cases.question);
    std::vector<NpzArray> arrays = {{.entry = {.name = "header", .dtype = DType::u8, .shape = {header.size()}}}};
    for (const char c : header) arrays[0].bytes.push_back(static_cast<std::byte>(c));
    std::uint64_t first = 0; // of the column, among the operands of a case
    for (const Column& column : columns_of(cases.question)) {
        NpzArray array{.entry = {.name = std::string(column.name), .dtype = dtype_of(column), .shape = {cases.size()}}};
        if (column.words > 1) array.entry.shape.push_back(column.words);
        const int size = info(array.entry.dtype).bits / 8;
        for (std::size_t i = 0; i < cases.size(); ++i)
            for (std::uint64_t w = 0; w < column.words; ++w) {
                const bool result = column.name == "result";
                const std::uint32_t code = result ? cases.results[i] : cases.operands_at(i)[first + w];
                append_word(array.bytes, code << column.shift(), size);
            }
        first += column.words;
        arrays.push_back(std::move(array));
    }
    if (has_flags(cases.question)) {
        NpzArray array{.entry = {.name = "flags", .dtype = DType::u8, .shape = {cases.size()}}};
        for (const std::uint8_t flags : cases.flags) array.bytes.push_back(std::byte{flags});
        arrays.push_back(std::move(array));
    }
    return npz_archive(path, arrays);
}

std::string CaseFile::place(std::size_t i) const {
    return lines.empty() ? fmt::format("case {}", i) : fmt::format("line {}", lines[i]);
}

CaseFile read_cases(const std::filesystem::path& path) {
    return path.extension() == ".npz" ? read_npz(path) : read_text(path);
}

CaseCheck check_cases(const Cases& cases, const Watch& watch) {
    const Progress progress = begin(watch, cases.size());
    CaseCheck result{.cases = cases.size()};
    std::mutex mutex;
    for_each_chunk(cases.size(), 256, 0, [&](std::uint64_t first, std::uint64_t last) {
        std::vector<Mismatch> found;
        for (std::size_t i = first; i < last; ++i) {
            const Answer written{cases.results[i], has_flags(cases.question) ? cases.flags[i] : std::uint8_t{0}};
            const Answer computed = exact_answer(cases.question, cases.operands_at(i));
            if (!(written == computed)) found.push_back({i, written, computed});
        }
        const std::lock_guard lock(mutex);
        result.mismatches += found.size();
        result.first.insert(result.first.end(), found.begin(), found.end());
        std::ranges::sort(result.first, {}, &Mismatch::index);
        result.first.resize(std::min<std::size_t>(result.first.size(), 10));
        if (progress) progress(last - first);
    });
    return result;
}

} // namespace amp::conformance

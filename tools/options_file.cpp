#include <ampscope/tools/options_file.h>

#include <ampscope/sim/base/text.h>
#include <ampscope/sim/io/text_file.h>
#include <ampscope/tools/output.h>

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

namespace amp {

namespace {

constexpr std::size_t longest_quote = 60; // columns of a line that an error repeats

std::string place(const std::string& path, int line) { return fmt::format("{}:{}: ", path, line); }

/// A text without its quotes and escapes, or a word as it stands in the file.
struct Value {
    std::string text;
    bool has_quotes = false;
};

bool is_flag(const CLI::Option& option) { return option.get_items_expected_max() == 0; }
bool takes_list(const CLI::Option& option) { return option.get_items_expected_max() > 1; }
bool takes_text(const CLI::Option& option) { return option.get_type_name().starts_with("TEXT"); }

/// The number that all of a text is, in digits of that base.
std::optional<std::uint64_t> whole(std::string_view digits, int base) {
    std::uint64_t number = 0;
    const char* const end = digits.data() + digits.size();
    const auto [stop, problem] = std::from_chars(digits.data(), end, number, base);
    return problem == std::errc{} && stop == end ? std::optional(number) : std::nullopt;
}

/// A number as the command line has it, where TOML has 1_000, 0x3e8, 0o1750 or 0b1111101000; other words as they are.
std::string plain_number(std::string_view word) {
    const auto is_digit = [&](std::size_t i) {
        const auto c = static_cast<unsigned char>(word[i]);
        return std::isdigit(c) != 0 || (word.starts_with("0x") && std::isxdigit(c) != 0);
    };
    std::string text;
    for (std::size_t i = 0; i < word.size(); ++i)
        if (word[i] != '_' || i == 0 || i + 1 == word.size() || !is_digit(i - 1) || !is_digit(i + 1)) text += word[i];
    for (const auto& [prefix, base] : {std::pair("0x", 16), std::pair("0o", 8), std::pair("0b", 2)})
        if (text.starts_with(prefix))
            if (const auto number = whole(std::string_view(text).substr(2), base)) return std::to_string(*number);
    return text;
}

/// A code point in UTF-8.
std::string utf8(std::uint64_t c) {
    if (c < 0x80) return {static_cast<char>(c)};
    const int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3; // bytes after the first, which says their number
    std::string text(1, static_cast<char>(0xff00U >> (more + 1) | c >> 6 * more));
    for (int i = more - 1; i >= 0; --i) text += static_cast<char>(0x80 | (c >> 6 * i & 0x3f));
    return text;
}

/// Reads keys and values from the text of a file, in order.
class TomlReader {
  public:
    TomlReader(const std::string& path, std::string_view text)
        : path_(path), text_(text), at_(text.starts_with("\xEF\xBB\xBF") ? 3 : 0) {} // the mark of some editors

    /// The line on which the next key stands, which is not yet read; false after the last.
    bool next_key() {
        for (skip_blanks(); !at_end() && next() == '\n'; skip_blanks()) skip();
        return !at_end();
    }
    [[nodiscard]] int line() const { return line_; }

    /// "name =", without the name's quotes.
    std::string key() {
        const std::string_view rest = rest_of_line();
        const std::size_t equals = rest.find('=');
        if (rest.front() == '[')
            fail("unknown section '" + quoted(rest) + "': options stand in lines name = value, without sections");
        std::string name(rest.substr(0, std::min(equals, rest.size())));
        CLI::detail::remove_quotes(CLI::detail::trim(name));
        if (equals == std::string_view::npos || name.empty()) fail("expected name = value, not '" + quoted(rest) + "'");
        at_ += equals + 1;
        return name;
    }

    /// All that the key gets: one value, or those of a list, which may go on over several lines.
    std::vector<Value> values(const std::string& key, const CLI::Option& option, bool& is_list) {
        skip_blanks();
        is_list = !at_end() && next() == '[';
        std::vector<Value> all = is_list ? list(key) : std::vector{value(key, "")};
        skip_blanks();
        if (at_end() || next() == '\n') return all;
        std::string hint;
        if (takes_list(option) && !is_list)
            hint = fmt::format("; several values are a list: {} = [\"...\", \"...\"]", key);
        else if (takes_text(option) && !is_list && !all.front().has_quotes)
            hint = fmt::format("; put a text with spaces in quotes: {} = \"...\"", key);
        fail(fmt::format("expected the end of the line after the value of {}, not '{}'{}", key, quoted(rest_of_line()),
                         hint));
    }

    [[noreturn]] void fail(const std::string& what) const { throw UsageError(place(path_, line_) + what); }

  private:
    [[nodiscard]] bool at_end() const { return at_ == text_.size(); }
    [[nodiscard]] char next() const { return text_[at_]; }
    void skip() { line_ += text_[at_++] == '\n'; }
    [[nodiscard]] std::string_view rest_of_line() const {
        return text_.substr(at_, std::min(text_.find('\n', at_), text_.size()) - at_);
    }
    static std::string quoted(std::string_view text) {
        std::string words(text.substr(0, 4 * longest_quote)); // before it is looked at by columns
        return clipped(printable(CLI::detail::trim(words)), longest_quote);
    }

    /// Spaces and a comment, up to the end of the line.
    void skip_blanks() {
        while (!at_end() && (next() == ' ' || next() == '\t' || next() == '\r')) ++at_;
        if (!at_end() && next() == '#') at_ += rest_of_line().size();
    }

    std::vector<Value> list(const std::string& key) {
        const int first = line_;
        std::vector<Value> all;
        skip();
        while (true) {
            if (!next_key()) {
                line_ = first;
                fail(fmt::format("the list of {} has no closing ]", key));
            }
            if (next() == ']') break;
            all.push_back(value(key, ",]"));
            if (next_key() && next() == ',') skip();
            else if (!at_end() && next() != ']')
                fail(fmt::format("expected , or ] in the list of {}, not '{}'", key, quoted(rest_of_line())));
        }
        skip();
        return all;
    }

    /// In quotes, or a word as it would stand on the command line, which ends at a space or one of these signs.
    Value value(const std::string& key, std::string_view ends) {
        if (!at_end() && (next() == '"' || next() == '\'')) return {text_in_quotes(key), true};
        const std::size_t begin = at_;
        while (!at_end() && std::string_view(" \t\r\n#").find(next()) == std::string_view::npos &&
               ends.find(next()) == std::string_view::npos)
            ++at_;
        if (at_ > begin && text_[begin] != '[' && text_[begin] != '{')
            return {std::string(text_.substr(begin, at_ - begin))};
        at_ = begin;
        const std::string there = quoted(rest_of_line());
        fail(there.empty() ? fmt::format("expected a value of {}", key)
                           : fmt::format("expected a text or a number for {}, not '{}'", key, there));
    }

    std::string text_in_quotes(const std::string& key) {
        const char quote = next();
        if (rest_of_line().starts_with(std::string(3, quote)))
            fail(fmt::format("the text of {0} begins with {1}{1}{1}: texts of several lines are not supported; put it "
                             "between {1} and {1}",
                             key, quote));
        ++at_;
        std::string text;
        while (!at_end() && next() != quote && next() != '\n')
            text += quote == '"' && next() == '\\' ? escaped(key) : std::string(1, text_[at_++]);
        if (at_end() || next() != quote) fail(fmt::format("the text of {} has no closing {}", key, quote));
        ++at_;
        return text;
    }

    /// What a \ and the signs after it stand for.
    std::string escaped(const std::string& key) {
        constexpr std::string_view letters = "btnfre\"\\", characters = "\b\t\n\f\r\x1b\"\\";
        const std::string_view rest = rest_of_line(), letter = rest.substr(1, 1);
        const std::size_t known = letter.empty() ? letters.npos : letters.find(letter);
        const std::size_t digits = letter == "u" ? 4 : letter == "U" ? 8 : 0;
        const std::string_view sequence = rest.substr(0, std::min(2 + digits, rest.find('"', 2)));
        at_ += sequence.size();
        if (known != letters.npos) return {characters[known]};
        const auto c = sequence.size() == 2 + digits ? whole(sequence.substr(2), 16) : std::nullopt;
        const bool is_half = c && *c >= 0xd800 && *c < 0xe000; // of a character in UTF-16
        if (c && *c > 0 && *c <= 0x10ffff && !is_half) return utf8(*c);
        fail(fmt::format(R"(the text of {} has '{}', which stands for no character: those that do are \b \t \n \f \r )"
                         R"(\e \" \\ \uXXXX \UXXXXXXXX; between ' and ' a \ is a \)",
                         key, quoted(sequence)));
    }

    const std::string& path_;
    std::string_view text_;
    std::size_t at_;
    int line_ = 1;
};

/// What is wrong with these values for the option, or "".
std::string fault_of(const CLI::Option& option, const std::string& name, const std::vector<Value>& values,
                     bool is_list) {
    const auto is_truth = [](const Value& v) { return v.text == "true" || v.text == "false"; };
    if (!option.get_configurable()) return fmt::format("{} is for the command line, not for a file", name);
    if (is_flag(option) && (is_list || !is_truth(values.front())))
        return fmt::format("{}: expected true or false, not {}", name,
                           is_list ? "a list" : "'" + clipped(printable(values.front().text), longest_quote) + "'");
    if (is_list && !takes_list(option)) return fmt::format("{}: expected one value, not a list", name);
    if (values.empty()) return fmt::format("{}: expected values in the list", name);
    for (const Value& v : values)
        if (takes_text(option) && is_truth(v) && !v.has_quotes)
            return fmt::format("{}: expected a text, not {}; if that is one, put it in quotes", name, v.text);
    return "";
}

} // namespace

void OptionsFile::read(const std::string& path) {
    if (path.empty()) throw UsageError("--config needs a value");
    path_ = path;
    text_ = TextFile(path).rest(longest_line);
}

std::vector<CLI::ConfigItem> OptionsFile::from_config(std::istream& /*same_file*/) const {
    std::vector<CLI::ConfigItem> given;
    for (TomlReader reader(path_, text_); reader.next_key();) {
        const int line = reader.line();
        CLI::ConfigItem item;
        item.name = reader.key();
        const std::string name = clipped(printable(item.name), longest_quote);
        const CLI::Option* const option = app_.get_option_no_throw("--" + item.name);
        if (option == nullptr) reader.fail("unknown option '" + name + "'");
        bool is_list = false;
        const std::vector<Value> values = reader.values(name, *option, is_list);
        const auto [first, is_new] = lines_.emplace(item.name, line);
        const std::string fault =
            is_new ? fault_of(*option, name, values, is_list)
                   : fmt::format("{} is given more than once; line {} has it, too", name, first->second);
        if (!fault.empty()) throw UsageError(place(path_, line) + fault);
        if (is_flag(*option) && values.front().text == "false") continue; // as if it were not given, which it is not
        for (const Value& v : values)
            item.inputs.push_back(v.has_quotes || takes_text(*option) ? v.text : plain_number(v.text));
        given.push_back(std::move(item));
    }
    return given;
}

std::string OptionsFile::place_of(const std::string& name) const {
    const auto found = lines_.find(name);
    return found == lines_.end() ? "" : place(path_, found->second);
}

} // namespace amp

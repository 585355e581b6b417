#include <ampscope/tools/options_file.h>

#include <ampscope/sim/base/text.h>
#include <ampscope/sim/io/text_file.h>
#include <ampscope/tools/output.h>

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace amp {

namespace {

constexpr std::size_t longest_quote = 60; // columns of a line that an error repeats

std::string place(const std::string& path, int line) { return fmt::format("{}:{}: ", path, line); }

/// Reads keys and values from the text of a file, in order.
class TomlReader {
  public:
    TomlReader(const std::string& path, std::string_view text) : path_(path), text_(text) {}

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
    std::vector<std::string> values(const std::string& key, bool& is_list) {
        skip_blanks();
        is_list = !at_end() && next() == '[';
        std::vector<std::string> all = is_list ? list(key) : std::vector{value(key, "")};
        skip_blanks();
        if (!at_end() && next() != '\n')
            fail(fmt::format("expected the end of the line after the value of {}, not '{}'; several values are a list: "
                             "{} = [\"...\", \"...\"]",
                             key, quoted(rest_of_line()), key));
        return all;
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

    std::vector<std::string> list(const std::string& key) {
        const int first = line_;
        std::vector<std::string> all;
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
    std::string value(const std::string& key, std::string_view ends) {
        if (!at_end() && (next() == '"' || next() == '\'')) return text_in_quotes(key);
        const std::size_t begin = at_;
        while (!at_end() && std::string_view(" \t\r\n#").find(next()) == std::string_view::npos &&
               ends.find(next()) == std::string_view::npos)
            ++at_;
        if (at_ == begin) fail(fmt::format("expected a value of {}, not '{}'", key, quoted(rest_of_line())));
        return std::string(text_.substr(begin, at_ - begin));
    }

    std::string text_in_quotes(const std::string& key) {
        const char quote = text_[at_++];
        std::string text;
        for (; !at_end() && next() != quote && next() != '\n'; ++at_) {
            if (quote == '"' && next() == '\\' && at_ + 1 < text_.size() &&
                (text_[at_ + 1] == '\\' || text_[at_ + 1] == '"'))
                ++at_;
            text += next();
        }
        if (at_end() || next() != quote) fail(fmt::format("the text of {} has no closing {}", key, quote));
        ++at_;
        return text;
    }

    const std::string& path_;
    std::string_view text_;
    std::size_t at_ = 0;
    int line_ = 1;
};

/// What is wrong with so many values for the option, or "".
std::string fault_of(const CLI::Option& option, const std::string& name, const std::vector<std::string>& values,
                     bool is_list) {
    if (!option.get_configurable()) return fmt::format("{} is for the command line, not for a file", name);
    const int most = option.get_items_expected_max();
    const bool is_flag = most == 0;
    if (is_flag && (is_list || (values.front() != "true" && values.front() != "false")))
        return fmt::format("{}: expected true or false, not {}", name,
                           is_list ? "a list" : "'" + clipped(printable(values.front()), longest_quote) + "'");
    if (is_list && most <= 1) return fmt::format("{}: expected one value, not a list", name);
    if (values.empty()) return fmt::format("{}: expected values in the list", name);
    return "";
}

} // namespace

void OptionsFile::read(const std::string& path) {
    if (path.empty()) throw UsageError("--config needs a value");
    path_ = path;
    text_ = TextFile(path).rest(longest_line);
}

std::vector<CLI::ConfigItem> OptionsFile::from_config(std::istream& /*same_file*/) const {
    std::vector<CLI::ConfigItem> items;
    for (TomlReader reader(path_, text_); reader.next_key();) {
        const int line = reader.line();
        CLI::ConfigItem item;
        item.name = reader.key();
        const std::string name = clipped(printable(item.name), longest_quote);
        const CLI::Option* const option = app_.get_option_no_throw("--" + item.name);
        if (option == nullptr) reader.fail("unknown option '" + name + "'");
        bool is_list = false;
        item.inputs = reader.values(name, is_list);
        const auto [first, is_new] = lines_.emplace(item.name, line);
        const std::string fault =
            is_new ? fault_of(*option, name, item.inputs, is_list)
                   : fmt::format("{} is given more than once; line {} has it, too", name, first->second);
        if (!fault.empty()) throw UsageError(place(path_, line) + fault);
        items.push_back(std::move(item));
    }
    return items;
}

std::string OptionsFile::place_of(const std::string& name) const {
    const auto found = lines_.find(name);
    return found == lines_.end() ? "" : place(path_, found->second);
}

} // namespace amp

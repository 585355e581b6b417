#include <ampscope/sim/io/json_reader.h>

#include <ampscope/sim/io/tensor_file.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fmt/format.h>
#include <istream>
#include <set>
#include <unordered_map>

namespace amp {

namespace {

using Json = nlohmann::ordered_json;

/// Text that is not JSON, or exceeds a limit.
struct JsonFault : std::runtime_error {
    JsonFault(std::uint64_t position, const std::string& what, bool broken_text)
        : std::runtime_error(fmt::format("byte {}: {}", position - std::min<std::uint64_t>(position, 1), what)),
          broken(broken_text) {}
    bool broken; ///< the text is not JSON; else it exceeds a limit
};

/// Text in memory as a stream that knows how far it was read.
struct TextBuffer : std::streambuf {
    explicit TextBuffer(std::string_view text) {
        char* const begin = const_cast<char*>(text.data()); // nothing writes to it: there is no put area
        setg(begin, begin, begin + text.size());
    }
    [[nodiscard]] std::uint64_t position() const { return static_cast<std::uint64_t>(gptr() - eback()); }
};

/// The infinite and NaN words of a text, outside its strings, by their index among all words. Words are what a parser
/// reports as null, truth values or numbers, and it reports them in the order of the text.
using NonfiniteWords = std::unordered_map<std::size_t, double>;

/// Builds a document from what nlohmann's parser reports, within the limits. nlohmann's own builder has no limits, and
/// searches an object for every key, which takes hours for an object of 10^6 keys.
class Builder {
  public:
    explicit Builder(std::function<std::uint64_t()> bytes_read) : position(std::move(bytes_read)) {}

    NonfiniteWords nonfinite{};
    Json root{};
    std::function<std::uint64_t()> position;
    /// Called with an array of the top object and an element of it (an object or array), which is then dropped.
    std::function<void(std::string_view array, const Json& element)> element{};
    std::span<const std::string_view> enough{}; ///< keys of the top object; once all were read, parsing stops

    bool null() { return add_word(nullptr); }
    bool boolean(bool value) { return add_word(value); }
    bool number_integer(std::int64_t value) { return add_word(value); }
    bool number_unsigned(std::uint64_t value) { return add_word(value); }
    bool number_float(double value, const std::string&) { return add_word(value); }
    bool string(std::string& value) {
        count_text(value);
        return add(std::move(value));
    }
    bool binary(Json::binary_t&) { return false; } // does not occur in JSON text

    bool start_object(std::size_t) { return open(Json::object()); }
    bool end_object() { return close(); }
    bool start_array(std::size_t) { return open(Json::array()); }
    bool end_array() { return close(); }

    bool key(std::string& name) {
        count();
        count_text(name);
        if (open_.size() == 1) {
            if (given_.contains(name))
                throw JsonFault(position(), fmt::format("'{}' comes a second time", name.substr(0, 100)), false);
            if (std::ranges::find(enough, name) != enough.end()) found_.insert(name);
        }
        open_.back().key = std::move(name);
        return true;
    }

    bool parse_error(std::size_t at, const std::string&, const nlohmann::json::exception& problem) {
        const std::string_view what = problem.what();
        throw JsonFault(at,
                        what.find("UTF-8") != what.npos      ? "the JSON is not UTF-8 here"
                        : what.find("overflow") != what.npos ? "this number is beyond FP64"
                                                             : "the JSON is broken here",
                        true);
    }

  private:
    /// An object or array that has not ended, and where the next value of an object goes.
    struct Open {
        Json* json;
        std::string key{};
        std::unordered_map<std::string, std::size_t> index{}; ///< index of the keys of a large object
    };

    void count() {
        if (++kept_.values > most_json_values)
            throw JsonFault(position(), fmt::format("more than {} values in one piece of JSON", most_json_values),
                            false);
    }

    void count_text(const std::string& text) {
        kept_.text += text.size();
        if (kept_.text > longest_json)
            throw JsonFault(position(), fmt::format("more than {} in one piece of JSON", size_text(longest_json)),
                            false);
    }

    bool add_word(Json value) {
        const auto found = nonfinite.empty() ? nonfinite.end() : nonfinite.find(words_);
        ++words_;
        return add(found == nonfinite.end() ? std::move(value) : Json(found->second));
    }

    bool add(Json value) {
        place(std::move(value));
        return enough.empty() || open_.size() != 1 || found_.size() < enough.size();
    }

    Json* place(Json value) {
        count();
        if (open_.empty()) return &(root = std::move(value));
        Open& to = open_.back();
        if (to.json->is_array()) {
            auto& array = to.json->get_ref<Json::array_t&>();
            return &array.emplace_back(std::move(value));
        }
        auto& object = to.json->get_ref<Json::object_t&>();
        Json& member = member_of(object, to);
        return &(member = std::move(value));
    }

    /// The member of that key, added if it is missing.
    static Json& member_of(Json::object_t& object, Open& to) {
        constexpr std::size_t few = 16; // up to this number, keys are compared one by one
        Json::object_t::Container& members = object;
        if (members.size() < few) {
            for (auto& [key, value] : members)
                if (key == to.key) return value;
        } else {
            if (to.index.empty())
                for (std::size_t i = 0; i < members.size(); ++i) to.index.emplace(members[i].first, i);
            const auto [found, is_new] = to.index.emplace(to.key, members.size());
            if (!is_new) return members[found->second].second;
        }
        return members.emplace_back(to.key, Json()).second;
    }

    bool open(Json container) {
        if (open_.size() >= deepest_json)
            throw JsonFault(position(), fmt::format("more than {} levels of JSON", deepest_json), false);
        if (open_.size() == 2) before_element_ = kept_;
        Json* const placed = place(std::move(container));
        open_.push_back({placed});
        return true;
    }

    bool close() {
        open_.pop_back();
        if (element && open_.size() == 2 && open_[0].json->is_object() && open_[1].json->is_array()) {
            auto& array = open_[1].json->get_ref<Json::array_t&>();
            given_.insert(open_[0].key);
            element(open_[0].key, array.back());
            array.pop_back();
            kept_ = before_element_;
        }
        return true;
    }

    struct Kept {
        std::size_t values = 0, text = 0; ///< so far: number of values, and bytes of text
    };

    std::vector<Open> open_;
    std::set<std::string> given_; ///< arrays of which elements were passed on, which cannot be taken back
    std::set<std::string> found_; ///< those of `enough` that the top object has so far
    Kept kept_, before_element_;
    std::size_t words_ = 0;
};

/// The infinite and NaN words of a text. Replaces each by "0" and spaces, so that the other bytes keep their places.
NonfiniteWords take_nonfinite(std::string& text) {
    NonfiniteWords found;
    std::size_t words = 0;
    for (std::size_t at = text.starts_with("\xef\xbb\xbf") ? 3 : 0; at < text.size();) {
        if (text[at] == '"') {
            for (++at; at < text.size() && text[at] != '"'; ++at)
                if (text[at] == '\\') ++at;
            ++at;
            continue;
        }
        const std::size_t end = std::min(text.find_first_of(" \t\r\n,:[]{}\"", at), text.size());
        if (end == at) {
            ++at;
            continue;
        }
        const std::string word = text.substr(at, end - at);
        char* stop = nullptr;
        const double value = std::strtod(word.c_str(), &stop);
        if (stop == word.c_str() + word.size() && !std::isfinite(value)) {
            found.emplace(words, value);
            text.replace(at, word.size(), "0" + std::string(word.size() - 1, ' '));
        }
        ++words;
        at = end;
    }
    return found;
}

Json parsed(std::string_view text, NonfiniteWords nonfinite) {
    TextBuffer buffer(text);
    std::istream in(&buffer);
    Builder builder([&] { return buffer.position(); });
    builder.nonfinite = std::move(nonfinite);
    Json::sax_parse(in, &builder);
    return std::move(builder.root);
}

/// Most documents are JSON. One that is not is searched for infinite and NaN words and parsed again.
Json parsed(std::string_view text, Nonfinite nonfinite) {
    try {
        return parsed(text, NonfiniteWords());
    } catch (const JsonFault& fault) {
        if (nonfinite == Nonfinite::refused || !fault.broken) throw;
        std::string without(text);
        NonfiniteWords words = take_nonfinite(without);
        if (words.empty()) throw;
        return parsed(without, std::move(words));
    }
}

} // namespace

Json parse_json(std::string_view text, const std::filesystem::path& file, std::string_view place, Nonfinite nonfinite) {
    try {
        if (text.size() > longest_json)
            throw JsonFault(longest_json, fmt::format("more than {} of JSON", size_text(longest_json)), false);
        return parsed(text, nonfinite);
    } catch (const JsonFault& fault) {
        throw FileError(file, std::string(place) + fault.what());
    }
}

Json parse_json_head(std::string_view text, std::span<const std::string_view> keys, const std::filesystem::path& file) {
    TextBuffer buffer(text);
    std::istream in(&buffer);
    Builder builder([&] { return buffer.position(); });
    builder.enough = keys;
    try {
        Json::sax_parse(in, &builder);
    } catch (const JsonFault& fault) {
        throw FileError(file, fault.what());
    }
    return std::move(builder.root);
}

bool begins_with(const std::filesystem::path& file, std::string_view key, std::string_view value) {
    std::error_code none;
    if (!std::filesystem::is_regular_file(file, none)) return false;
    try {
        std::string text(4096, '\0');
        TextFile source(file);
        text.resize(static_cast<std::size_t>(source.sgetn(text.data(), static_cast<std::streamsize>(text.size()))));
        return parse_json_head(text, std::span(&key, 1), file).value(key, Json()) == value;
    } catch (const std::exception&) {
        return false;
    }
}

Json read_json_object(const std::filesystem::path& file) {
    const std::string text = TextFile(file).rest(longest_json);
    Json json = parse_json(text, file, "is no JSON object: ");
    if (!json.is_object()) throw FileError(file, "is no JSON object");
    return json;
}

namespace {

/// `between` is called after each element, `position` tells how many bytes were read.
Json read_elements(const std::filesystem::path& file, std::istream& in, const JsonElementSink& sink,
                   const std::function<std::uint64_t()>& position, const std::function<void()>& between) {
    Builder builder(position);
    builder.element = [&](std::string_view array, const Json& element) {
        sink(array, element, builder.root);
        between();
    };
    try {
        Json::sax_parse(in, &builder);
    } catch (const JsonFault& fault) {
        throw FileError(file, fault.what());
    }
    return std::move(builder.root);
}

} // namespace

Json read_json_elements(const std::filesystem::path& file, const JsonElementSink& sink) {
    TextFile text(file, Pipe::accepted);
    text.allow(longest_json);
    std::istream in(&text);
    return read_elements(
        file, in, sink, [&] { return text.position(); }, [&] { text.allow(longest_json); });
}

Json read_json_elements(const std::filesystem::path& name, const std::string& text, const JsonElementSink& sink) {
    TextBuffer buffer(text);
    std::istream in(&buffer);
    return read_elements(
        name, in, sink, [&] { return buffer.position(); }, [] {});
}

std::string words_of(const std::exception& error) {
    const std::string_view what = error.what(); // "[json.exception.type_error.302] type must be number, but is string"
    return std::string(what.substr(what.starts_with("[json.") ? what.find(' ') + 1 : 0));
}

} // namespace amp

// Reading JSON. All JSON text that this project parses is parsed here, so that the limits hold everywhere.
//
// A few bytes of text can make a document that takes a hundred times as much memory, or one so deep that a recursive
// function (copy, dump) overflows the stack. So a document, or a line of JSON Lines, has at most longest_json bytes,
// most_json_values values and deepest_json levels; within these limits it takes 300 MB at most. If a key repeats in an
// object, the last one counts, as in Python's json.
#pragma once

#include <ampscope/sim/io/tensor_file.h>
#include <ampscope/sim/io/text_file.h>

#include <nlohmann/json.hpp>

#include <functional>
#include <optional>
#include <span>
#include <string_view>

namespace amp {

inline constexpr std::size_t longest_json = longest_line; ///< bytes; the run.json of 10,000 tensors has 1 MiB
inline constexpr std::size_t most_json_values = 1 << 20;  ///< objects, arrays and the values in them
inline constexpr std::size_t deepest_json = 100;          ///< levels of nested objects and arrays

/// Whether numbers may be infinite or NaN. Python's json.dumps writes NaN, Infinity and -Infinity, printf writes nan
/// and inf, and a loop may log 1e999. None of them is a number in JSON; where accepted, each is read as what it means.
enum class Nonfinite : std::uint8_t { refused, accepted };

/// Parses one document. Throws FileError "FILE: PLACEbyte N: what is wrong" for text that is not JSON or beyond the
/// limits.
nlohmann::ordered_json parse_json(std::string_view text, const std::filesystem::path& file, std::string_view place = {},
                                  Nonfinite nonfinite = Nonfinite::accepted);

/// The members of an object from its first up to the last of `keys`; the text after that need not be JSON. Throws
/// FileError if the text before it is not.
nlohmann::ordered_json parse_json_head(std::string_view text, std::span<const std::string_view> keys,
                                       const std::filesystem::path& file);

/// Whether a file begins as a JSON object with that member near its start; false for what cannot be read.
bool begins_with(const std::filesystem::path& file, std::string_view key, std::string_view value);

/// Reads a file that is one JSON object, as the files of a run folder are. Throws FileError.
nlohmann::ordered_json read_json_object(const std::filesystem::path& file);

/// Called with an element of the named array, and the document so far without the elements before it.
using JsonElementSink = std::function<void(std::string_view array, const nlohmann::ordered_json& element,
                                           const nlohmann::ordered_json& document)>;

/// Reads a document of any length whose top level is an object. Elements of its arrays that are objects or arrays are
/// passed to `sink` and then dropped; the limits hold for each of them and for the rest. The file may be a pipe.
/// Returns the document without these elements. Throws FileError, also if such an array occurs twice, and whatever
/// `sink` throws.
nlohmann::ordered_json read_json_elements(const std::filesystem::path& file, const JsonElementSink& sink);

/// The same for a text; `name` stands for a file in errors.
nlohmann::ordered_json read_json_elements(const std::filesystem::path& name, const std::string& text,
                                          const JsonElementSink& sink);

/// The message of an exception, without the label in brackets with which nlohmann's messages begin.
std::string words_of(const std::exception& error);

/// Returns use(), which takes from a document what the file should say. Throws FileError "FILE: WHAT: ..." for the
/// exceptions of use(), but for FileErrors and std::bad_alloc, which pass: lack of memory is no fault of the file.
template <class Use>
auto taken(const std::filesystem::path& file, const std::string& what, const Use& use) {
    try {
        return use();
    } catch (const FileError&) {
        throw;
    } catch (const std::bad_alloc&) {
        throw;
    } catch (const std::exception& error) {
        throw FileError(file, what + ": " + words_of(error));
    }
}

/// The same for a line that is skipped if it is wrong: the result is empty then.
template <class Use>
auto taken_if_right(const Use& use) -> std::optional<decltype(use())> {
    try {
        return use();
    } catch (const std::bad_alloc&) {
        throw;
    } catch (const std::exception&) {
        return std::nullopt;
    }
}

} // namespace amp

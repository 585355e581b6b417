// Reading JSON. Everything in this project that parses JSON text does it here, so that the limits hold everywhere.
//
// Text of a few bytes can make a document that costs a hundred times as much, or that a recursive walk (a copy, dump)
// does not survive. So a document, or a line of JSON Lines, has at most longest_json bytes, most_json_values values and
// deepest_json levels; together they take 300 MB at most. If a key repeats in an object, the last one counts, as it
// does in Python's json.
#pragma once

#include <ampscope/sim/io/tensor_file.h>
#include <ampscope/sim/io/text_file.h>

#include <nlohmann/json.hpp>

#include <functional>
#include <optional>
#include <span>
#include <string_view>

namespace amp {

inline constexpr std::size_t longest_json = longest_line; ///< in bytes; the run.json of 10,000 tensors has 1 MiB
inline constexpr std::size_t most_json_values = 1 << 20;  ///< objects, arrays and what they hold
inline constexpr std::size_t deepest_json = 100;          ///< objects and arrays within each other

/// Whether numbers may be not finite. Python's json.dumps writes NaN, Infinity and -Infinity, printf nan and inf, and a
/// loop may log 1e999: none of them is a number of JSON, and all are read as what they mean.
enum class Nonfinite : std::uint8_t { refused, accepted };

/// One document. Throws FileError "FILE: PLACEbyte N: what is wrong" for text that is none, or beyond the limits.
nlohmann::ordered_json parse_json(std::string_view text, const std::filesystem::path& file, std::string_view place = {},
                                  Nonfinite nonfinite = Nonfinite::accepted);

/// The members of one object up to the last of `keys`, of which the rest of the text need not be JSON. Throws FileError
/// where it is none before.
nlohmann::ordered_json parse_json_head(std::string_view text, std::span<const std::string_view> keys,
                                       const std::filesystem::path& file);

/// A file that is one JSON object, as the files of a run folder are. Throws FileError.
nlohmann::ordered_json read_json_object(const std::filesystem::path& file);

/// Told of an element of an array, and of the document so far, without the elements before.
using JsonElementSink = std::function<void(std::string_view array, const nlohmann::ordered_json& element,
                                           const nlohmann::ordered_json& document)>;

/// A document, however long, whose top is an object: the elements of its arrays that are objects or arrays go to `sink`
/// and are forgotten. The limits hold for each of them and for the rest. A pipe will do. Returns the document without
/// these elements. Throws FileError, also for such an array that comes twice, and what `sink` throws.
nlohmann::ordered_json read_json_elements(const std::filesystem::path& file, const JsonElementSink& sink);

/// What an exception says, without the label in brackets with which this library's begin.
std::string words_of(const std::exception& error);

/// The result of use(), which takes from a document what its file should say. Throws FileError "FILE: WHAT: ..." for
/// what use() finds wrong; FileErrors pass, and so does want of memory, which is no fault of the file.
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

/// The same of a line that is left out where it is wrong: then there is no result.
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

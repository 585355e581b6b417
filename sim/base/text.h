// Numbers and names as people read them, shared by charts, terminal reports and error messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace amp {

/// `part` of `whole` as a percentage with three significant digits: "12.4 %", "0.0312 %", "3.1e-05 %". It is "0 %" only
/// if `part` is 0, "100 %" only if it is `whole`, and "-" if `whole` is 0.
std::string percent(std::uint64_t part, std::uint64_t whole);

/// The same for a rate in 0 ... 1.
std::string percent(double rate);

/// A limit that somebody chose, as a percentage without needless digits: "0.1 %".
std::string limit_percent(double limit);

/// 1234567 as "1,234,567".
std::string grouped(std::uint64_t n);

/// "1 tensor", "1,234 tensors".
std::string plural(std::uint64_t n, std::string_view noun);

/// At most five characters: "999", "12.3k", "4.57M", "618M".
std::string short_count(std::uint64_t n);

/// The text as a sentence: with a full stop, unless it ends with one, or with a question or exclamation mark.
std::string sentence(std::string text);

/// In upper case: "FP16" for "fp16".
std::string upper_case(std::string_view text);

/// "1" or "2^13".
std::string power_of_two(int log2);

/// The same for any scale; one that is no power of two is written with four significant digits: "3.5".
std::string scale_text(double scale);

/// Valid UTF-8 with nothing hidden in it: control characters, those that change the direction of the text and others
/// that are invisible become U+FFFD, as do bytes that are not UTF-8. Names come from files of unknown origin.
std::string printable(std::string_view text);

/// The same for the text of a JSON document: line breaks stay, and \u escapes replace what may not be there.
std::string printable_json(std::string_view json);

/// A printable() text as a cell of a CSV file, in quotes where RFC 4180 asks for them. A text that begins with = + - or
/// @ gets an apostrophe in front, since spreadsheets would read it as a formula. Not for numbers, which are written as
/// they are.
std::string csv_cell(std::string_view text);

/// The number of terminal columns that a printable() text takes: two for East Asian wide characters and emoji, none for
/// combining marks.
std::size_t width(std::string_view utf8);

/// A printable() text shortened to at most `columns` columns: it keeps both ends, joined by an ellipsis.
std::string clipped(std::string_view utf8, std::size_t columns);

} // namespace amp

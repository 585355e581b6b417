// Numbers and names as people read them: the wording shared by charts, terminal reports and error lines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace amp {

/// `part` of `whole` as a percentage with three significant digits: "12.4 %", "0.0312 %", "3.1e-05 %". Only nothing is
/// "0 %" and only everything is "100 %"; "-" where `whole` is 0.
std::string percent(std::uint64_t part, std::uint64_t whole);

/// The same for a rate of 0 ... 1.
std::string percent(double rate);

/// 1234567 as "1,234,567".
std::string grouped(std::uint64_t n);

/// "1 tensor", "1,234 tensors".
std::string plural(std::uint64_t n, std::string_view noun);

/// At most five characters: "999", "12.3k", "4.57M", "618M".
std::string short_count(std::uint64_t n);

/// "FP16" of "fp16".
std::string upper_case(std::string_view text);

/// "1" or "2^13".
std::string power_of_two(int log2);

/// The same of any scale; of one that is no power of two four digits: "3.5".
std::string scale_text(double scale);

/// Valid UTF-8 in which nothing hides: control characters, those that turn the direction of the text and others that
/// are invisible become U+FFFD, as do bytes that are no UTF-8. Names come from files of unknown origin.
std::string printable(std::string_view text);

/// The same for the text of a JSON document: line ends stay, and \u escapes take the place of what must not be there.
std::string printable_json(std::string_view json);

/// A printable() text as a cell of a CSV, in quotes where RFC 4180 wants them. A text that begins with = + - or @ gets
/// an apostrophe in front, since spreadsheets would take it for a formula. Numbers are no texts: they stay as they are.
std::string csv_cell(std::string_view text);

/// The columns that a printable() text takes in a terminal: two for East Asian wide characters and emoji, none for
/// combining marks.
std::size_t width(std::string_view utf8);

/// A printable() text of at most `columns` columns: a longer one keeps both ends, joined by an ellipsis.
std::string clipped(std::string_view utf8, std::size_t columns);

} // namespace amp

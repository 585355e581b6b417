// What there is to say about formats and about one number in every format, as JSON and as text for a terminal.
#pragma once

#include <ampscope/formats/codec.h>

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace amp::format_tool {

/// Every fact of one format; `values` adds all values of a format of at most 8 bits. Throws std::invalid_argument if
/// they are asked of a longer one.
nlohmann::ordered_json format_facts(const FormatSpec& format, bool values);
std::string facts_text(const nlohmann::ordered_json& facts);

/// The table of formats, one line each, at most 80 columns.
std::string format_table(bool color);

/// A number given as text, taken apart exactly up to 63 bits and a sticky bit, so that each format rounds it once:
/// decimal or hexadecimal floating point of any length, inf, nan. Throws std::invalid_argument for anything else.
Unpacked parse_number(const std::string& text);

/// The number in each format: code, bits, value, error, neighbours.
nlohmann::ordered_json number_facts(const std::string& text, const std::vector<FormatSpec>& shown,
                                    const Policy& policy);
std::string number_text(const nlohmann::ordered_json& facts);

} // namespace amp::format_tool

// The facts about formats, and about one number in every format, as JSON and as text for a terminal.
#pragma once

#include <ampscope/formats/codec.h>

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace amp::format_tool {

/// All facts about one format; `values` adds all its values. Throws std::invalid_argument if these are asked for and
/// the format has more than 8 bits.
nlohmann::ordered_json format_facts(const FormatSpec& format, bool values);
std::string facts_text(const nlohmann::ordered_json& facts);

/// The table of formats, one line each, at most 80 columns.
std::string format_table(bool color);

/// A number given as text: decimal or hexadecimal floating point of any length, inf, nan. It is exact up to 63 bits and
/// a sticky bit, so that each format rounds it only once. Throws std::invalid_argument for any other text.
Unpacked parse_number(const std::string& text);

/// The number in each format: code, bits, value, error, neighbours.
nlohmann::ordered_json number_facts(const std::string& text, const std::vector<FormatSpec>& shown,
                                    const Policy& policy);
std::string number_text(const nlohmann::ordered_json& facts);

} // namespace amp::format_tool

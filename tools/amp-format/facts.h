// The facts about formats, and about one number in every format, as JSON and as documents.
#pragma once

#include <ampscope/sim/findings/format_facts.h>
#include <ampscope/tools/document/document.h>

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <vector>

namespace amp::format_tool {

/// All facts about one format; `values` adds all its values. Throws std::invalid_argument if these are asked for and
/// the format has more than 16 bits.
nlohmann::ordered_json facts_json(const FormatSpec& format, bool values);
/// A table of the facts, and one of the values where they are listed.
Document facts_document(const nlohmann::ordered_json& facts);

/// The table of formats, one line each, at most 80 columns.
Document format_table();

/// The number in each format: code, bits, value, error, neighbours.
nlohmann::ordered_json number_json(const std::string& text, const std::vector<NumberInFormat>& stored);
Document number_document(const nlohmann::ordered_json& facts);

/// The number in the formats in which it is rounded, stochastically: its two neighbours, how many of the random words
/// round it up (away from zero), and the bias of that.
nlohmann::ordered_json choices_json(const std::string& text, const std::vector<StochasticChoice>& choices,
                                    const Policy& policy);
Document choices_document(const nlohmann::ordered_json& facts);

} // namespace amp::format_tool

// Which tensors of a recording a tool's options select, and which of these options had no effect.
#pragma once

#include <ampscope/sim/io/recording.h>

#include <initializer_list>
#include <optional>
#include <regex>
#include <string>
#include <vector>

namespace amp {

/// A line for each of --dtype and --as that no file needed; none if files were repeated or damaged, as these may have.
std::vector<std::string> unneeded_options(const OpenOptions& said, std::initializer_list<const Recording*> recordings);

/// Compiles the regular expression of --tensor; none for "". Back-references are refused. Throws std::invalid_argument.
std::optional<std::regex> tensor_pattern(const std::string& text);

/// Whether the name of a tensor contains a match; true without a pattern.
bool matches(const std::optional<std::regex>& pattern, const std::string& name);

} // namespace amp

// Which tensors of a recording the options of a tool select, and which of these options selected nothing.
#pragma once

#include <ampscope/sim/io/recording.h>

#include <initializer_list>
#include <optional>
#include <regex>
#include <string>
#include <vector>

namespace amp {

/// A line for each of --dtype and --as that no file needed; none where files were repeated or broken, which may have.
std::vector<std::string> unneeded_options(const OpenOptions& said, std::initializer_list<const Recording*> recordings);

/// The regular expression of --tensor, without references back to its parts; none for "". Throws std::invalid_argument.
std::optional<std::regex> tensor_pattern(const std::string& text);

/// Whether the name of a tensor contains a match.
bool matches(const std::optional<std::regex>& pattern, const std::string& name);

} // namespace amp

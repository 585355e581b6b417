// Sequences of tokens.
#pragma once

#include <ampscope/sim/program/dataset.h>

#include <filesystem>
#include <string>
#include <vector>

namespace amp {

/// Token numbers below `vocabulary` in windows of `context`; each token is the target of those before it. The last
/// tenth is for validation. `unit` and `where` are for errors: FileError if there are too few.
Dataset windows_of(const std::string& name, const std::string& unit, std::vector<float> tokens, std::int64_t vocabulary,
                   const std::string& fingerprint, std::int64_t context, const std::filesystem::path& where);

/// The array `tokens` of an .npz file, or the only array of another file: token numbers, in one sequence, as a
/// tokenizer made them of a text. The vocabulary ends with the largest. Throws FileError.
Dataset tokens_data(const std::filesystem::path& file, std::int64_t context);

} // namespace amp

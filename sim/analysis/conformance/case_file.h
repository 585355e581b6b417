// Files of cases: text like TestFloat's, and .npz. tools/amp-format/README.md describes both for their users.
#pragma once

#include <ampscope/sim/analysis/conformance/cases.h>

#include <filesystem>
#include <functional>

namespace amp::conformance {

/// "key: value", line by line: everything that has to be known to compute the cases again.
std::string header_of(const Question& question);

/// The text in pieces: the header as comments, then a line for each case.
void write_text(const Cases& cases, const std::function<void(std::string_view)>& sink);

/// The bytes of an .npz archive. `path` is what errors name.
std::string npz_of(const std::filesystem::path& path, const Cases& cases);

struct CaseFile {
    Cases cases{};
    std::vector<std::uint64_t> lines{}; ///< the line of each case in a text, from 1

    /// "line 12" or, of an archive, "case 0".
    [[nodiscard]] std::string place(std::size_t i) const;
};

/// Reads a file of either kind: .npz by its name, else text. Throws FileError, which names the line or the array.
CaseFile read_cases(const std::filesystem::path& path);

/// A case whose result or flags are not what exact arithmetic gives.
struct Mismatch {
    std::size_t index = 0;
    Answer written{}, computed{};
};

struct CaseCheck {
    std::uint64_t cases = 0, mismatches = 0;
    std::vector<Mismatch> first{}; ///< at most 10, by position
};

/// Computes every case by exact_answer(), on all cores. `watch` counts cases.
CaseCheck check_cases(const Cases& cases, const Watch& watch = {});

} // namespace amp::conformance

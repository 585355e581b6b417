// Dot products recorded on matrix hardware, against a row of the table of accumulators.
#pragma once

#include <ampscope/formats/accumulator.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace amp {

/// What a file of recordings is compared with.
struct RecordedQuestion {
    std::string accumulator;             ///< a name as accumulator() takes it, with or without -acc16
    std::optional<std::string> a{}, b{}; ///< the operands' formats; else the first of the row's that holds them all
    std::optional<std::string> output{}; ///< d_fp32 or d_fp16; else every one in the file that the row can make
};

struct RecordedMismatch {
    std::uint64_t index = 0;
    std::uint32_t got = 0, want = 0; ///< FP32 bits
};

/// One output of a file.
struct RecordedComparison {
    Accumulator accumulator{};
    FormatSpec a{}, b{};
    std::string output;
    std::uint64_t k = 0, cases = 0, mismatches = 0;
    std::vector<RecordedMismatch> first{}; ///< at most 3
};

/// Throws std::invalid_argument for an accumulator or a format that is not there, or if the two do not go together.
void check(const RecordedQuestion& question);

/// The file has arrays a and b (cases x k), c (cases), and d_fp32 or d_fp16 (cases), all of 32-bit words that are FP32
/// bits: d = a . b + c with the FP32 or FP16 accumulator; for the latter c is rounded to FP16 first. A NaN of FP16
/// equals any other, since those bits cannot say which it was.
/// Throws FileError, naming file and array; what check() throws.
std::vector<RecordedComparison> compare_recorded(const std::filesystem::path& file, const RecordedQuestion& question);

} // namespace amp

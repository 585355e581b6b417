// Compares dot products recorded on matrix hardware with a row of the table of accumulators.
#pragma once

#include <ampscope/formats/accumulator.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace amp {

/// What a file of recordings is to be compared with.
struct RecordedQuestion {
    std::string accumulator;             ///< a name that accumulator() knows, with or without -acc16
    std::optional<std::string> a{}, b{}; ///< operand formats; else the row's first that holds all numbers
    std::optional<std::string> output{}; ///< d_fp32 or d_fp16; else all in the file that the row computes
};

struct RecordedMismatch {
    std::uint64_t index = 0;
    std::uint32_t got = 0, want = 0; ///< FP32 bits computed and recorded
};

/// The result for one output array of a file.
struct RecordedComparison {
    Accumulator accumulator{};
    FormatSpec a{}, b{};
    std::string output;
    std::uint64_t k = 0, cases = 0, mismatches = 0;
    std::vector<RecordedMismatch> first{}; ///< at most 3
};

/// Throws std::invalid_argument if the accumulator or a format is unknown, or if they do not go together.
void check(const RecordedQuestion& question);

/// Compares d = a . b + c of every case. The file has the arrays a and b (cases x k), c (cases), and d_fp32 or d_fp16
/// (cases), all 32-bit words with FP32 bits. d_fp16 is the output of the FP16 accumulator, whose c is rounded to FP16
/// first. NaNs of FP16 are all equal, since FP32 bits cannot say which it was. Throws FileError, naming file and array,
/// and what check() throws.
std::vector<RecordedComparison> compare_recorded(const std::filesystem::path& file, const RecordedQuestion& question);

} // namespace amp

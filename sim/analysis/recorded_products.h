// Compares dot products recorded on matrix hardware with a row of the table of accumulators.
#pragma once

#include <ampscope/formats/accumulator.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
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

/// A sum that differs from a row of the table in one thing.
struct NearbySum {
    std::string_view difference; ///< "a bit less"
    Accumulator accumulator;
    std::uint64_t refuted = 0; ///< recorded sums that it does not give
};

/// What a recording should tell a row from: fewer and more bits and products, other exponents of zeros, the other
/// rounding; and, where steps are not fused, the order in which they might add instead. Empty for sums without steps.
std::vector<NearbySum> nearby_sums(const Accumulator& acc);

/// The differences of sums that are refuted, or of those that are not: "a bit less, a bit more".
std::string differences(const std::vector<NearbySum>& nearby, bool refuted);

/// The result for one output array of a file.
struct RecordedComparison {
    Accumulator accumulator{};
    FormatSpec a{}, b{};
    std::string output;
    std::uint64_t k = 0, cases = 0, mismatches = 0;
    std::vector<RecordedMismatch> first{}; ///< at most 3
    std::vector<NearbySum> nearby{};
};

/// Whether accumulator() knows the name.
bool is_accumulator(const std::string& name);

/// Throws std::invalid_argument if the accumulator or a format is unknown, or if they do not go together.
void check(const RecordedQuestion& question);

/// Compares d = a . b + c of every case. The file has the arrays a and b (cases x k), c (cases), and d_fp32 or d_fp16
/// (cases), all 32-bit words with FP32 bits. d_fp16 is the output of the FP16 accumulator, whose c is rounded to FP16
/// first. NaNs of FP16 are all equal, since FP32 bits cannot say which it was. Throws FileError, naming file and array,
/// and what check() throws.
std::vector<RecordedComparison> compare_recorded(const std::filesystem::path& file, const RecordedQuestion& question);

} // namespace amp

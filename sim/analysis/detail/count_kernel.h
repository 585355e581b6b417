// The inner loop over FP32 words, private to count.cpp: plain loops for any machine, and a version for AVX-512.
#pragma once

#include <ampscope/formats/instruction_set.h>
#include <ampscope/sim/analysis/count.h>

namespace amp::detail {

/// The counters that the kernels increment. An element's key is 32 * row + mantissa class + first_key. Its row is its
/// exponent field; zeros and subnormals have row subnormal_row + the exponent field of their magnitude bits converted
/// to float.
struct FloatTables {
    static constexpr std::size_t copies = 8; ///< neighbours use different copies and do not wait for stores
    static constexpr std::size_t row = 32;   ///< mantissa_classes, rounded up to a power of two
    static constexpr std::size_t subnormal_row = 256;
    static constexpr std::size_t rows = subnormal_row + 127 + 23;
    static constexpr std::size_t first_key = 7; ///< an offset that the AVX-512 kernel's keys have
    static constexpr std::size_t size = rows * row + first_key;

    /// The copies of a counter lie side by side; if they were 4096 bytes apart, a load would wait for the store to
    /// another copy. A row is one KiB, with its common classes in the first half.
    alignas(1024) std::array<std::array<std::uint32_t, copies>, size> keys{};
    std::uint64_t pending = 0;    ///< elements since the last flush: a 32-bit counter holds at most 2^32 - 1
    std::uint32_t smallest = ~0u; ///< (magnitude bits - 1) of the smallest non-zero finite element
    std::uint32_t largest = 0;    ///< magnitude bits of the largest finite element
    MagnitudeHistogram histogram{};

    void flush(); ///< moves the 32-bit counters into the histogram
    void merge(FloatTables& other);
};

/// Counts FP32 words (little-endian, at most sum_block of them, at any address) and returns their sums.
MagnitudeSums count_words(FloatTables& tables, std::span<const std::byte> words,
                          InstructionSet set = best_instruction_set());

} // namespace amp::detail

// The inner loop over FP32 words, private to count.cpp: a plain version for every machine and one for AVX-512.
#pragma once

#include <ampscope/sim/analysis/count.h>

namespace amp::detail {

/// Counters that the kernels add to. Rows are FP32 exponent fields; subnormals are kept apart and counted one by one.
struct FloatTables {
    static constexpr std::size_t copies = 4;       // neighbouring elements use different copies: no wait for a store
    static constexpr std::size_t row = 32;         // mantissa_classes, rounded up to a power of two
    static constexpr std::size_t rows = 256 * row; // by exponent field

    std::array<std::array<std::uint32_t, rows>, copies> keys{};
    std::uint64_t pending = 0; ///< elements since the last flush: a 32-bit counter holds no more than 2^32 - 1
    std::uint32_t smallest = ~0u; ///< (magnitude bits - 1) of the smallest non-zero finite element
    std::uint32_t largest = 0;    ///< magnitude bits of the largest finite element
    MagnitudeHistogram histogram{};

    void flush(); ///< moves the 32-bit counters into the histogram
};

/// Counts n words (n a multiple of 16, at most sum_block) and returns their sums.
MagnitudeSums count_words(FloatTables& tables, const std::uint32_t* words, std::size_t n);

} // namespace amp::detail

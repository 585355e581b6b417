// What block scaling would do: the share of elements that underflow or are clipped if every N consecutive elements have
// their own scale, as in MX formats and block-scaled FP8, compared with one scale for the whole tensor.
#pragma once

#include <ampscope/sim/analysis/histogram.h>
#include <ampscope/sim/analysis/pass.h>

namespace amp {

/// Counts for one element format under three kinds of scales. Zeros, NaN and infinities are not counted.
struct BlockCounts {
    FormatSpec format;
    ClassCounts mx;     ///< E8M0 scale 2^(floor(log2 amax) - max_exponent), clamped to 2^-127 (OCP MX 1.0 section 6.3)
    ClassCounts amax;   ///< exact scale amax / max: the largest magnitude of the block becomes the largest value
    ClassCounts tensor; ///< exact scale amax / max, with the amax of the whole tensor
};

struct BlockStatistics {
    std::uint64_t blocks = 0;
    std::uint64_t zero_blocks = 0;                 ///< blocks without any finite non-zero element
    std::map<int, std::uint64_t> amax_exponents{}; ///< blocks by floor(log2 amax) over finite elements
    std::vector<BlockCounts> formats{};

    void merge(const BlockStatistics& other);
};

/// Blocks consist of `block` consecutive numbers in stored order; the last may be shorter. The formats are those of the
/// table with at most 8 bits, without scale formats. An overflow is an element that the cast would clip. Counts do not
/// depend on a power-of-two loss scale, recorded or not. Throws FileError.
BlockStatistics measure_blocks(const TensorFile& file, std::size_t tensor, std::uint64_t block, double tensor_amax,
                               int threads, const Progress& progress = {});

} // namespace amp

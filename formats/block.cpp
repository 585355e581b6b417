#include <ampscope/formats/block.h>

#include <ampscope/formats/instruction_set.h>

#include <algorithm>
#include <cmath>

namespace amp {

namespace {

/// Calls visit(block, first, count) for every run of consecutive elements that lie in one row and one block.
template <class Visit>
void for_runs(const BlockScaling& s, std::int64_t rows, std::int64_t columns, const Visit& visit) {
    const BlockGrid grid = s.grid(rows, columns);
    for (std::int64_t i = 0; i < rows; ++i)
        for (std::int64_t j = 0; j < columns; j += grid.width)
            visit(static_cast<std::size_t>(grid.at(i, j)), static_cast<std::size_t>(i * columns + j),
                  static_cast<std::size_t>(std::min(grid.width, columns - j)));
}

constexpr std::uint32_t magnitude_bits(float x) { return std::bit_cast<std::uint32_t>(x) & 0x7fffffff; }

/// The largest magnitude of n numbers, as bits: these are ordered as the magnitudes are, and NaN's are the largest.
struct LargestKernel {
    AMPSCOPE_KERNEL void run(const float* in, std::size_t n, std::uint32_t* result) {
        std::uint32_t most = 0;
        for (std::size_t i = 0; i < n; ++i) most = std::max(most, magnitude_bits(in[i]));
        *result = most;
    }
};

} // namespace

std::vector<float> block_amax(const BlockScaling& scaling, std::span<const float> in, std::int64_t rows,
                              std::int64_t columns) {
    std::vector<float> amax(static_cast<std::size_t>(scaling.grid(rows, columns).count()));
    const bool keeps_nan = amax_keeps_nan(scaling.rule);
    const InstructionSet set = best_instruction_set();
    for_runs(scaling, rows, columns, [&](std::size_t block, std::size_t first, std::size_t count) {
        constexpr std::uint32_t infinity = 0x7f800000;
        std::uint32_t most = 0;
        dispatch<LargestKernel>(set, in.data() + first, count, &most);
        if (most > infinity && !keeps_nan) {
            most = 0;
            for (const float x : in.subspan(first, count))
                if (const std::uint32_t bits = magnitude_bits(x); bits <= infinity) most = std::max(most, bits);
        }
        amax[block] = std::bit_cast<float>(std::max(most, std::bit_cast<std::uint32_t>(amax[block])));
    });
    return amax;
}

void quantize_blocks(const BlockScaling& scaling, std::span<const float> in, std::int64_t rows, std::int64_t columns,
                     std::span<const BlockScale> scales, std::span<float> out, const BatchOptions& options) {
    for_runs(scaling, rows, columns, [&](std::size_t block, std::size_t first, std::size_t count) {
        const BlockScale s = scales[block];
        if (s.divides)
            for (std::size_t i = first; i < first + count; ++i) out[i] = in[i] / s.decode;
        else
            for (std::size_t i = first; i < first + count; ++i) out[i] = in[i] * s.encode;
    });
    BatchOptions saturating = options;
    saturating.policy.overflow = Overflow::saturate_all;
    quantize(scaling.element, out, out, saturating);
}

void dequantize_blocks(const BlockScaling& scaling, std::span<const float> in, std::int64_t rows, std::int64_t columns,
                       std::span<const float> decode_scales, std::span<float> out) {
    for_runs(scaling, rows, columns, [&](std::size_t block, std::size_t first, std::size_t count) {
        for (std::size_t i = first; i < first + count; ++i) out[i] = in[i] * decode_scales[block];
    });
}

} // namespace amp

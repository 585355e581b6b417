// Sums over the numbers of blocks: a plain loop, and a fast one for blocks without NaN and infinities.
#pragma once

#include <ampscope/formats/instruction_set.h>
#include <ampscope/sim/analysis/scaled_cast.h>

namespace amp::detail {

/// What is known of a block before its numbers are summed.
struct CastBlock {
    BlockScale scale{};
    double factor = 1; ///< x ~ q * factor
    float amax = 0;    ///< the block's largest magnitude; if finite, NaN and infinities in the block are ignored
};

/// Numbers of one block, at most scaled_piece, and what they became.
inline constexpr std::size_t scaled_piece = std::size_t{1} << 15;

/// The largest float that the format does not saturate when it rounds it to nearest-even.
float largest_unsaturated(const FormatSpec& element);

/// The definition: one number after the other. Fills all of a ScaledBlock but its place.
ScaledBlock sum_numbers(std::span<const float> x, std::span<const float> q, const CastBlock& block, float limit);

/// The same for consecutive runs of n numbers, one for each of out's elements, in vectors. Runs with NaN, infinities or
/// such scales are left to sum_numbers().
void sum_runs(std::span<const float> x, std::span<const float> q, std::size_t n, std::span<const CastBlock> blocks,
              float limit, std::span<ScaledBlock> out, InstructionSet set = best_instruction_set());

} // namespace amp::detail

// What a cast with a scale for each block does to a tensor: the scales, what becomes zero or is clipped, the error, and
// all of it block by block. formats/block.h says how scales are chosen and numbers rounded.
#pragma once

#include <ampscope/formats/block.h>
#include <ampscope/sim/base/progress.h>
#include <ampscope/sim/io/tensor_file.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <vector>

namespace amp {

/// Replaces groups of rows x columns of a matrix before it is cast; what is left at its ends are smaller groups.
struct GroupTransform {
    std::int64_t rows = 1, columns = 1; ///< extents of a group, in numbers
    /// Replaces whole groups of a matrix in C order in place; only the last may be smaller. Empty: does nothing.
    std::function<void(std::span<float> matrix, std::int64_t columns)> apply{};
};

/// A cast of a tensor. The tensor is a matrix: its last axis is the columns, all others together are the rows; a tensor
/// of one dimension is one row. The numbers that are cast are FP32(FP64(x) / recorded_scale). Blocks at the end of a
/// row or column may be smaller than the others.
struct ScaledCast {
    BlockScaling scaling{};
    /// Stochastic rounding uses seed 0, stream 0, step 0 and the index of the element in C order.
    Rounding rounding = Rounding::nearest_even;
    std::uint8_t random_bits = 32; ///< stochastic rounding draws so many for each number
    double recorded_scale = 1;
    std::optional<BlockScale> given{}; ///< the scale of the one block, where it does not follow from the tensor
    GroupTransform transform{};
};

/// What became of one block. Squares of FP32 numbers and of their errors neither overflow nor underflow in FP64.
struct ScaledBlock {
    std::int64_t row = 0, column = 0; ///< place of the block among the blocks, from 0
    float scale = 1;                  ///< the decode scale: x ~ q * BlockScaling::factor(scale, upper scale)
    float amax = 0, least = 0;        ///< largest and least non-zero finite magnitude; 0: there is none
    std::uint64_t elements = 0;       ///< number of elements
    std::uint64_t nonzero = 0;        ///< elements that are finite and not zero
    std::uint64_t nonfinite = 0;      ///< elements that are NaN or infinite
    std::uint64_t underflow = 0;      ///< non-zero elements that become zero
    std::uint64_t saturated = 0;      ///< finite elements beyond the largest value after rounding, stored as that
    std::uint64_t lost = 0;           ///< finite elements that become NaN or infinite, since their scale is
    double signal = 0, noise = 0;     ///< sums of x^2 and (x - q * scale)^2 over finite elements that are not lost

    /// Adds a later part of the same block.
    void merge(const ScaledBlock& part);
    /// noise / signal; infinite if elements are lost, 0 without noise.
    [[nodiscard]] double relative_noise() const;
    /// 10 log10(signal / noise); infinity without noise, NaN without signal.
    [[nodiscard]] double sqnr() const;
};

/// Whether block a lost more than block b: a larger relative noise or, if it is the same, more noise. Of equal ones the
/// first in C order.
bool is_worse(const ScaledBlock& a, const ScaledBlock& b);

/// The blocks of a tensor, or of several, together. Blocks without a non-zero element have no part in the scales.
struct ScaledStatistics {
    std::uint64_t elements = 0, nonzero = 0, nonfinite = 0, underflow = 0, saturated = 0, lost = 0; ///< see ScaledBlock
    double signal = 0, noise = 0;
    std::uint64_t blocks = 0;
    std::uint64_t zero_blocks = 0;            ///< blocks of zeros
    std::uint64_t partial_blocks = 0;         ///< blocks smaller than asked for, at the end of a row or column
    std::uint64_t nonfinite_blocks = 0;       ///< blocks with NaN or infinity
    std::uint64_t zero_scales = 0;            ///< decode scales of 0: all of the block becomes zero
    std::uint64_t nonfinite_scales = 0;       ///< decode scales that are NaN or infinite
    std::uint64_t saturated_scales = 0;       ///< scales at an end of what the rule can give, whatever the amax
    float least_scale = 0, largest_scale = 0; ///< among positive finite decode scales; 0: there is none
    /// Positive finite decode scales: E4M3's by code, others by floor(log2 scale); see exponents_of_scales().
    std::map<int, std::uint64_t> scales{};
    /// Blocks with a finite non-zero element by floor(log2(amax / least)).
    std::map<int, std::uint64_t> ranges{};

    /// Number of finite elements that are not lost: those of signal and noise.
    [[nodiscard]] std::uint64_t compared() const { return elements - nonfinite - lost; }
    /// 10 log10(signal / noise); infinity without noise, NaN without signal.
    [[nodiscard]] double sqnr() const;
    /// The mean squared error; NaN if no element is compared.
    [[nodiscard]] double mean_squared_error() const;
    /// largest_scale / least_scale; NaN if there is none.
    [[nodiscard]] double spread() const;
    /// Adds the statistics of a later tensor.
    void merge(const ScaledStatistics& later);
};

/// Whether the keys of ScaledStatistics::scales are codes of E4M3.
constexpr bool scales_have_codes(const FormatSpec& scale) { return scale == format("e4m3"); }

/// The scales of a cast with scales of that format by floor(log2 scale), those of E4M3 too.
std::map<int, std::uint64_t> exponents_of_scales(const ScaledStatistics& statistics, const FormatSpec& scale);

/// A tensor's blocks and what became of them.
struct ScaledResult {
    ScaledStatistics statistics{};
    std::int64_t height = 0, width = 0; ///< extents of a block, in elements
    std::int64_t down = 0, across = 0;  ///< number of blocks below and beside each other
    float tensor_scale = 1;             ///< NVFP4's encode scale of the tensor, or of the line with the largest amax
    std::vector<ScaledBlock> worst{};   ///< the worst blocks, worst first
    std::vector<ScaledBlock> blocks{};  ///< all blocks in C order, if asked for
};

struct ScaledOptions {
    std::size_t worst = 10; ///< number of blocks in `worst`
    bool blocks = false;    ///< whether to keep all blocks
    int threads = 0;        ///< 0: every core; results do not depend on it
};

/// Whether the blocks of the tensor can be read: in C order, or as the transposed of a matrix in C order (a tensor in
/// another order can be cast with one scale for all of it), and where the rows that a block spans have at most 2^26
/// numbers, which are kept in memory.
bool can_scale(const TensorEntry& tensor, const ScaledCast& cast);

/// Number of passes over the tensor that measure_scaled() makes.
int passes_over(const TensorEntry& tensor, const ScaledCast& cast);

/// Casts a tensor for which can_scale() holds. Sums of squares: number i of a block belongs to partial sum i mod 8, and
/// these are added pairwise (i and i + 4, i + 2, i + 1); then blocks are added in C order, or, in blocks of more than
/// 2^15 numbers, pieces. Throws FileError.
ScaledResult measure_scaled(const TensorFile& file, std::size_t tensor, const ScaledCast& cast,
                            const ScaledOptions& options = {}, const Progress& progress = {});

/// The largest magnitude of what is cast, as the rule takes it: infinities count, NaN may. Throws FileError.
float scaled_amax(const TensorFile& file, std::size_t tensor, const ScaledCast& cast, int threads,
                  const Progress& progress = {});

} // namespace amp

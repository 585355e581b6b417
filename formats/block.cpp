#include <ampscope/formats/block.h>

#include <ampscope/formats/environment.h>
#include <ampscope/formats/instruction_set.h>

#include <algorithm>
#include <bit>
#include <stdexcept>

namespace amp {

namespace {

/// Calls visit(first, block) for every row, with the index of its first element and that of its first block.
template <class Visit>
void for_rows(const BlockGrid& grid, std::int64_t rows, const Visit& visit) {
    for (std::int64_t i = 0; i < rows; ++i)
        visit(static_cast<std::size_t>(i * grid.columns), static_cast<std::size_t>(grid.at(i, 0)));
}

/// Raises most[b] to the largest magnitude in block b of a row, for all blocks that the row meets. Magnitudes are bits:
/// these are ordered as the magnitudes are, and NaN's are the largest. Those above `limit` do not count.
struct LargestKernel {
    AMPSCOPE_KERNEL std::uint32_t counted(float x, std::uint32_t limit) {
        const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(x) & 0x7fffffff;
        return magnitude & (0 - std::uint32_t{magnitude <= limit}); // as a choice, g++ would make a branch of it
    }
    AMPSCOPE_KERNEL void run(const float* row, std::size_t columns, std::size_t width, std::uint32_t limit,
                             std::uint32_t* most) {
        if (width == 1)
            for (std::size_t j = 0; j < columns; ++j) most[j] = std::max(most[j], counted(row[j], limit));
        else
            for (std::size_t j = 0; j < columns; j += width, ++most) {
                const std::size_t end = std::min(j + width, columns);
                std::uint32_t m = *most;
                for (std::size_t k = j; k < end; ++k) m = std::max(m, counted(row[k], limit));
                *most = m;
            }
    }
};

constexpr std::uint32_t limit_of(Magnitudes counted) {
    constexpr std::uint32_t infinity = 0x7f800000, nan = 0x7fffffff;
    return counted == Magnitudes::all ? nan : counted == Magnitudes::not_nan ? infinity : infinity - 1;
}

/// Multiplies the numbers of a row by the factors of their blocks, or divides by them.
struct ScaleKernel {
    AMPSCOPE_KERNEL void run(const float* row, std::size_t columns, std::size_t width, const float* factors,
                             bool divides, float* out) {
        if (divides) scale<true>(row, columns, width, factors, out);
        else scale<false>(row, columns, width, factors, out);
    }

  private:
    template <bool divides>
    AMPSCOPE_KERNEL void scale(const float* row, std::size_t columns, std::size_t width, const float* factors,
                               float* out) {
        if (width == 1) {
            AMPSCOPE_INDEPENDENT
            for (std::size_t j = 0; j < columns; ++j) out[j] = divides ? row[j] / factors[j] : row[j] * factors[j];
        } else
            for (std::size_t j = 0; j < columns; j += width, ++factors) {
                const std::size_t end = std::min(j + width, columns);
                const float factor = *factors;
                AMPSCOPE_INDEPENDENT
                for (std::size_t k = j; k < end; ++k) out[k] = divides ? row[k] / factor : row[k] * factor;
            }
    }
};

/// out = in, scaled by factors[b] in block b.
void scale_rows(const BlockGrid& grid, std::span<const float> in, std::int64_t rows, std::span<const float> factors,
                bool divides, std::span<float> out) {
    const InstructionSet set = best_instruction_set();
    for_rows(grid, rows, [&](std::size_t first, std::size_t block) {
        dispatch<ScaleKernel>(set, in.data() + first, static_cast<std::size_t>(grid.columns),
                              static_cast<std::size_t>(grid.width), factors.data() + block, divides,
                              out.data() + first);
    });
}

/// Clips the numbers of a row to what their blocks store.
struct ClipKernel {
    AMPSCOPE_KERNEL void run(float* row, std::size_t columns, std::size_t width, const BlockScale* scales) {
        for (std::size_t j = 0; j < columns; j += width, ++scales) {
            const std::size_t end = std::min(j + width, columns);
            const float low = scales->low, high = scales->high;
            AMPSCOPE_INDEPENDENT
            for (std::size_t k = j; k < end; ++k) row[k] = row[k] < low ? low : row[k] > high ? high : row[k];
        }
    }
};

} // namespace

float largest_magnitude(std::span<const float> x, Magnitudes counted) {
    std::uint32_t most = 0;
    dispatch<LargestKernel>(best_instruction_set(), x.data(), x.size(), x.size(), limit_of(counted), &most);
    return std::bit_cast<float>(most);
}

std::vector<float> block_amax(const BlockScaling& scaling, std::span<const float> in, std::int64_t rows,
                              std::int64_t columns) {
    const BlockGrid grid = scaling.grid(rows, columns);
    const std::uint32_t limit = limit_of(amax_keeps_nan(scaling.rule) ? Magnitudes::all : Magnitudes::not_nan);
    const InstructionSet set = best_instruction_set();
    std::vector<std::uint32_t> most(static_cast<std::size_t>(grid.count()));
    for_rows(grid, rows, [&](std::size_t first, std::size_t block) {
        dispatch<LargestKernel>(set, in.data() + first, static_cast<std::size_t>(columns),
                                static_cast<std::size_t>(grid.width), limit, most.data() + block);
    });
    std::vector<float> amax(most.size());
    std::ranges::transform(most, amax.begin(), [](std::uint32_t bits) { return std::bit_cast<float>(bits); });
    return amax;
}

void quantize_blocks(const BlockScaling& scaling, std::span<const float> in, std::int64_t rows, std::int64_t columns,
                     std::span<const BlockScale> scales, std::span<float> out, const BatchOptions& options) {
    const FloatEnvironment environment;
    const bool divides = !scales.empty() && scales.front().divisor != 0;
    if (std::ranges::any_of(scales, [&](const BlockScale& s) { return (s.divisor != 0) != divides; }))
        throw std::invalid_argument("scales to divide by and scales to multiply by in one call");
    std::vector<float> factors(scales.size());
    std::ranges::transform(scales, factors.begin(), divides ? &BlockScale::divisor : &BlockScale::encode);
    const BlockGrid grid = scaling.grid(rows, columns);
    scale_rows(grid, in, rows, factors, divides, out);
    BatchOptions saturating = options;
    saturating.policy.overflow = Overflow::saturate_all;
    const bool zero_points = scaling.rule == ScaleRule::affine;
    quantize(zero_points ? detail::wide_integers() : scaling.element, out, out, saturating);
    if (!zero_points) return;
    for_rows(grid, rows, [&](std::size_t first, std::size_t block) {
        dispatch<ClipKernel>(best_instruction_set(), out.data() + first, static_cast<std::size_t>(grid.columns),
                             static_cast<std::size_t>(grid.width), scales.data() + block);
    });
}

std::vector<float> quantize_blocks(const BlockScaling& scaling, std::span<const float> in, std::int64_t rows,
                                   std::int64_t columns, std::span<float> out, const BatchOptions& options) {
    const FloatEnvironment environment;
    const BlockGrid grid = scaling.grid(rows, columns);
    const std::vector<float> amax = block_amax(scaling, in, rows, columns),
                             upper = upper_scales(scaling, amax, rows, columns);
    const std::vector<BlockScale> scales = block_scales(scaling, in, rows, columns, amax, upper);
    quantize_blocks(scaling, in, rows, columns, scales, out, options);
    std::vector<float> factors(scales.size());
    for (std::size_t b = 0; b < scales.size(); ++b)
        factors[b] = scaling.factor(
            scales[b].decode, upper[static_cast<std::size_t>(scaling.upper_of(grid, static_cast<std::int64_t>(b)))]);
    return factors;
}

void dequantize_blocks(const BlockScaling& scaling, std::span<const float> in, std::int64_t rows, std::int64_t columns,
                       std::span<const float> decode_scales, std::span<float> out) {
    const FloatEnvironment environment;
    scale_rows(scaling.grid(rows, columns), in, rows, decode_scales, false, out);
}

} // namespace amp

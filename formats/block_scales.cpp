// The scales of tensors' blocks: see block.h.
#include <ampscope/formats/block.h>

#include <ampscope/formats/environment.h>
#include <ampscope/formats/instruction_set.h>

#include <algorithm>
#include <bit>

namespace amp {

namespace {

/// The errors of a row of numbers, added to those of its blocks in order.
struct ErrorKernel {
    AMPSCOPE_KERNEL void run(const float* x, const float* q, std::size_t columns, std::size_t width, const float* d,
                             const float* u, std::size_t u_step, RoundingError error, float* errors) {
        if (width == 1) {
            for (std::size_t j = 0; j < columns; ++j) errors[j] += error.of(q[j], d[j], u[j * u_step], x[j]);
            return;
        }
        for (std::size_t j = 0; j < columns; ++j) errors[j / width] += error.of(q[j], d[j / width], *u, x[j]);
    }
};

/// Adds neighbours at half the distance, and so on: line i and i + 8, i + 4, i + 2, i + 1 of 16.
float sum_as_tree(std::span<float> lines) {
    for (std::size_t half = std::bit_ceil(lines.size()) / 2; half > 0; half /= 2)
        for (std::size_t i = 0; i < half && i + half < lines.size(); ++i) lines[i] += lines[i + half];
    return lines[0];
}

/// The errors of blocks that are cast with these scales, to nearest.
std::vector<float> errors_of(const BlockScaling& scaling, std::span<const float> in, std::int64_t rows,
                             std::int64_t columns, std::span<const BlockScale> scales, std::span<const float> upper) {
    const BlockGrid grid = scaling.grid(rows, columns);
    const auto across = static_cast<std::size_t>(grid.across), width = static_cast<std::size_t>(columns);
    const RoundingError error = scaling.rounding_error();
    std::vector<float> q(in.size()), decode(scales.size()), errors(scales.size());
    quantize_blocks(scaling, in, rows, columns, scales, q);
    std::ranges::transform(scales, decode.begin(), &BlockScale::decode);
    std::vector<float> lines(across * (scaling.stands() ? 1 : static_cast<std::size_t>(grid.height)));
    for (std::int64_t row = 0; row < rows; ++row) {
        const std::int64_t in_block = row % grid.height;
        const std::size_t first = static_cast<std::size_t>(row) * width,
                          block = static_cast<std::size_t>(grid.at(row, 0));
        if (in_block == 0) std::ranges::fill(lines, 0.0F);
        float* const line = lines.data() + (scaling.stands() ? 0 : static_cast<std::size_t>(in_block) * across);
        dispatch<ErrorKernel>(best_instruction_set(), in.data() + first, q.data() + first, width,
                              static_cast<std::size_t>(grid.width), decode.data() + block,
                              upper.data() + (scaling.upper.lines() && !scaling.stands() ? row : 0),
                              std::size_t{scaling.upper.lines()}, error, line);
        if (in_block + 1 != grid.height && row + 1 != rows) continue;
        std::vector<float> of_block(lines.size() / across);
        for (std::size_t b = 0; b < across; ++b) {
            for (std::size_t i = 0; i < of_block.size(); ++i) of_block[i] = lines[i * across + b];
            errors[block + b] = sum_as_tree(of_block);
        }
    }
    return errors;
}

/// MS-EDEN's last step, for groups of numbers along the lines of blocks.
void correct(const BlockScaling& scaling, std::span<const float> in, std::int64_t rows, std::int64_t columns,
             std::vector<BlockScale>& scales, const RandomKey& key, std::uint64_t first_block) {
    const BlockGrid grid = scaling.grid(rows, columns);
    std::vector<float> q(in.size());
    quantize_blocks(scaling, in, rows, columns, scales, q, {.policy = {.rounding = Rounding::nearest_away}});
    const std::int64_t step = scaling.blocks_in(EdenSums::group), down = scaling.stands() ? step : 1,
                       across = scaling.stands() ? 1 : step;
    for (std::int64_t top = 0; top < grid.down; top += down)
        for (std::int64_t left = 0; left < grid.across; left += across) {
            const std::int64_t bottom = std::min(top + down, grid.down), right = std::min(left + across, grid.across);
            EdenSums sums;
            for (std::int64_t i = top * grid.height; i < std::min(bottom * grid.height, rows); ++i)
                for (std::int64_t j = left * grid.width; j < std::min(right * grid.width, columns); ++j) {
                    const auto at = static_cast<std::size_t>(i * columns + j);
                    sums.add(scales[static_cast<std::size_t>(grid.at(i, j))].scaled(in[at]), q[at]);
                }
            for (std::int64_t i = top; i < bottom; ++i)
                for (std::int64_t j = left; j < right; ++j) {
                    const auto b = static_cast<std::size_t>(i * grid.across + j);
                    scales[b].decode = sums.corrected(scales[b].decode, key.word(first_block + b));
                }
        }
}

} // namespace

std::vector<BlockRange> block_ranges(const BlockScaling& scaling, std::span<const float> in, std::int64_t rows,
                                     std::int64_t columns) {
    const FloatEnvironment environment;
    const BlockGrid grid = scaling.grid(rows, columns);
    std::vector<BlockRange> ranges(static_cast<std::size_t>(grid.count()));
    for (std::int64_t i = 0; i < rows; ++i) {
        const auto row = in.subspan(static_cast<std::size_t>(i * columns), static_cast<std::size_t>(columns));
        const auto width = static_cast<std::size_t>(grid.width);
        BlockRange* range = ranges.data() + grid.at(i, 0);
        for (std::size_t j = 0; j < row.size(); j += width, ++range) {
            BlockRange r = *range; // in registers
            for (const float x : row.subspan(j, std::min(width, row.size() - j))) r.add(x);
            *range = r;
        }
    }
    return ranges;
}

std::vector<float> upper_scales(const BlockScaling& scaling, std::span<const float> amax, std::int64_t rows,
                                std::int64_t columns) {
    const FloatEnvironment environment;
    const BlockGrid grid = scaling.grid(rows, columns);
    std::vector<float> upper(static_cast<std::size_t>(scaling.upper_count(rows, columns)));
    for (std::size_t b = 0; b < amax.size(); ++b) {
        float& most = upper[static_cast<std::size_t>(scaling.upper_of(grid, static_cast<std::int64_t>(b)))];
        most = std::max(most, amax[b]);
    }
    for (float& u : upper) u = scaling.upper_scale(u);
    return upper;
}

std::vector<BlockScale> block_scales(const BlockScaling& scaling, std::span<const float> in, std::int64_t rows,
                                     std::int64_t columns, std::span<const float> amax, std::span<const float> upper,
                                     const RandomKey& key, std::uint64_t first_block) {
    const FloatEnvironment environment;
    const BlockGrid grid = scaling.grid(rows, columns);
    if (scaling.rule == ScaleRule::affine) {
        const std::vector<BlockRange> ranges = block_ranges(scaling, in, rows, columns);
        std::vector<BlockScale> scales(ranges.size());
        std::ranges::transform(ranges, scales.begin(), [&](const BlockRange& r) { return scaling.scale_of(r); });
        return scales;
    }
    const bool chooses = scaling.upper.four_over_six != FourOverSix::off;
    std::vector<BlockScale> scales(amax.size()), four(chooses ? amax.size() : 0);
    for (std::size_t b = 0; b < scales.size(); ++b) {
        const float u = upper[static_cast<std::size_t>(scaling.upper_of(grid, static_cast<std::int64_t>(b)))];
        if (chooses) {
            const ScalePair pair = four_over_six_scales(scaling.rule, amax[b], scaling.tensor_scale(u));
            scales[b] = pair.six;
            four[b] = pair.four;
        } else {
            scales[b] = scaling.scale_of(amax[b], scaling.tensor_scale(u));
        }
    }
    if (chooses) {
        const std::vector<float> of_six = errors_of(scaling, in, rows, columns, scales, upper),
                                 of_four = errors_of(scaling, in, rows, columns, four, upper);
        for (std::size_t b = 0; b < scales.size(); ++b)
            if (of_four[b] < of_six[b]) scales[b] = four[b];
    }
    if (scaling.rule == ScaleRule::ms_eden) correct(scaling, in, rows, columns, scales, key, first_block);
    return scales;
}

} // namespace amp

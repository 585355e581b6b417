// The cast of a slab, tile by tile, and the sums over the blocks of each.
#pragma once

#include <ampscope/sim/analysis/detail/scaled_layout.h>
#include <ampscope/sim/analysis/detail/scaled_summary.h>
#include <ampscope/sim/analysis/detail/scaled_sums.h>
#include <ampscope/sim/analysis/detail/transpose.h>

#include <algorithm>
#include <vector>

namespace amp::detail {

/// Casts the tiles of a slab, and sums over each of their blocks.
struct SlabCaster {
    Slab slab;
    Tile tile;
    Summary summary;
    std::vector<BlockScale> scales;
    std::vector<CastBlock> casts;
    std::vector<ScaledBlock> blocks;
    std::vector<float> x, q; ///< blocks whose rows do not lie one behind the other

    /// Fills `blocks`; `upper`: the tile's upper scales; `first`, `first_block`: indices of its first number and block.
    void cast_tile(const ScaledCast& cast, const BlockScaling& scaling, std::span<const float> amax,
                   std::span<const float> upper, const Scales& of, float limit, std::uint64_t first,
                   std::uint64_t first_block) {
        const BlockGrid grid = scaling.grid(tile.rows, tile.columns);
        scales.resize(amax.size());
        casts.resize(amax.size());
        const bool plain = cast.given || (scaling.scales_by_amax() && !scaling.upper.lines());
        std::vector<BlockScale> chosen;
        if (!plain) chosen = block_scales(scaling, tile.x, tile.rows, tile.columns, amax, upper, {}, first_block);
        for (std::size_t i = 0; i < amax.size(); ++i) {
            const BlockScale scale = plain ? of.of(amax[i]) : chosen[i];
            // Assigned one by one: a copy of a whole block would wait for its parts to be stored.
            scales[i].encode = casts[i].scale.encode = scale.encode;
            scales[i].decode = casts[i].scale.decode = scale.decode;
            scales[i].divisor = casts[i].scale.divisor = scale.divisor;
            scales[i].low = casts[i].scale.low = scale.low;
            scales[i].high = casts[i].scale.high = scale.high;
            const std::int64_t line = scaling.upper_of(grid, static_cast<std::int64_t>(i));
            casts[i].factor =
                cast.given ? scale.decode : scaling.factor(scale.decode, upper[static_cast<std::size_t>(line)]);
            casts[i].amax = amax[i];
        }
        round(cast, scaling, first);
        blocks.resize(casts.size());
        if (tile.rows == 1 && grid.width <= static_cast<std::int64_t>(scaled_piece)) sum_consecutive(grid, limit);
        else
            for (std::int64_t b = 0; b < grid.count();) b += sum_blocks(grid, b, limit);
    }

  private:
    /// Fills the tile's q: at once, or row by row where numbers draw words by indices that skip other tiles.
    void round(const ScaledCast& cast, BlockScaling scaling, std::uint64_t first) {
        const bool at_once = tile.columns == slab.columns || cast.rounding != Rounding::stochastic;
        if (!at_once) scaling.rows = 1; // the tile has one line of blocks
        tile.q.resize(tile.x.size());
        const std::int64_t rows = at_once ? tile.rows : 1;
        for (std::int64_t row = 0; row < tile.rows; row += rows) {
            const auto at = static_cast<std::size_t>(row * tile.columns),
                       n = static_cast<std::size_t>(rows * tile.columns);
            quantize_blocks(scaling, tile.x.subspan(at, n), rows, tile.columns, scales,
                            std::span(tile.q).subspan(at, n),
                            {.policy = {.rounding = cast.rounding, .random_bits = cast.random_bits},
                             .key = {},
                             .first_index = first + static_cast<std::uint64_t>(row * slab.columns)});
        }
    }

    void sum_consecutive(const BlockGrid& grid, float limit) {
        const auto width = static_cast<std::size_t>(grid.width), whole = tile.x.size() / width;
        sum_runs(tile.x, tile.q, width, casts, limit, std::span(blocks).first(whole));
        if (const std::size_t rest = tile.x.size() - whole * width; rest != 0)
            sum_runs(tile.x.last(rest), std::span(tile.q).last(rest), rest, std::span(casts).subspan(whole), limit,
                     std::span(blocks).subspan(whole));
    }

    /// Sums over block b and, where blocks are small, its neighbours in the same row of blocks; returns their number.
    std::int64_t sum_blocks(const BlockGrid& grid, std::int64_t b, float limit) {
        constexpr std::int64_t line = 16; // numbers in a line of the cache, of which every row's is read once
        const std::int64_t top = b / grid.across * grid.height, left = b % grid.across * grid.width;
        const std::int64_t height = std::min(grid.height, tile.rows - top),
                           width = std::min(grid.width, tile.columns - left);
        const bool small = grid.width < line && height * width <= static_cast<std::int64_t>(scaled_piece);
        const std::int64_t count =
            small ? std::clamp<std::int64_t>((tile.columns - left) / width, 1, line / grid.width) : 1;
        const auto size = static_cast<std::size_t>(height * width), first = static_cast<std::size_t>(b),
                   together = static_cast<std::size_t>(count);
        x.resize(size * together);
        q.resize(x.size());
        gather(tile.x.data() + top * tile.columns + left, height, width, count, x.data());
        gather(tile.q.data() + top * tile.columns + left, height, width, count, q.data());
        if (size <= scaled_piece)
            sum_runs(x, q, size, std::span(casts).subspan(first, together), limit,
                     std::span(blocks).subspan(first, together));
        else sum_pieces(casts[first], blocks[first] = {}, limit);
        return count;
    }

    /// Copies neighbouring blocks of height x width one behind the other, each in C order.
    void gather(const float* from, std::int64_t height, std::int64_t width, std::int64_t count, float* to) const {
        if (width == 1) return transpose(from, tile.columns, height, count, to);
        for (std::int64_t row = 0; row < height; ++row, from += tile.columns)
            for (std::int64_t k = 0; k < count; ++k)
                std::copy_n(from + k * width, width, to + (k * height + row) * width);
    }

    void sum_pieces(const CastBlock& cast, ScaledBlock& block, float limit) const {
        for (std::size_t at = 0; at < x.size(); at += scaled_piece) {
            const std::size_t n = std::min(scaled_piece, x.size() - at);
            ScaledBlock part;
            sum_runs(std::span(x).subspan(at, n), std::span(q).subspan(at, n), n, {&cast, 1}, limit, {&part, 1});
            block.merge(part);
        }
    }
};

} // namespace amp::detail

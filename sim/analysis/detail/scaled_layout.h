// How a tensor is read to be cast with scales: in slabs of its matrix, and these in tiles.
#pragma once

#include <ampscope/sim/analysis/count.h>
#include <ampscope/sim/analysis/scaled_cast.h>

#include <utility>

namespace amp::detail {

/// A slab holds whole rows of a matrix, and whole blocks or, where these are as high as the matrix, a part of each.
struct Layout {
    BlockScaling scaling;       ///< the blocks of the matrix
    std::int64_t rows, columns; ///< extents of the matrix; where there is one row, a slab is a part of it
    BlockGrid grid;             ///< the tensor's blocks; `transposed`: those of its transposed
    std::int64_t slab;          ///< numbers in a slab; the last may have fewer
    /// Extents of a tile: all rows of a slab, or one line of blocks; all columns, or a part that is cast by itself.
    std::int64_t tile_rows, tile_columns;
    bool parts = false; ///< every slab holds a part of each block
    bool transposed = false;

    /// Whether each row of the matrix has an upper scale.
    [[nodiscard]] bool has_upper_rows() const { return scaling.upper.lines() && !scaling.stands(); }
    /// The row of the matrix with which that slab begins.
    [[nodiscard]] std::size_t first_row(std::uint64_t index) const {
        return static_cast<std::size_t>(index) * static_cast<std::size_t>(slab / columns);
    }
    /// The number of blocks that a slab holds, or holds parts of.
    [[nodiscard]] std::int64_t blocks_in_slab() const {
        return parts ? grid.count() : rows == 1 ? slab / grid.width : slab / columns / grid.height * grid.across;
    }
};

/// The matrix of a tensor: {rows, columns}.
std::pair<std::int64_t, std::int64_t> matrix_of(const TensorEntry& tensor);

/// The layout of a tensor that is not empty.
Layout layout_of(const TensorEntry& tensor, const ScaledCast& cast);

/// The numbers of a slab as FP32, before a transform.
struct Slab {
    std::int64_t rows = 0, columns = 0;
    std::span<const float> x; ///< FP32 as it was read where nothing is done to it, else in memory of the slab

    /// Reads the bytes of a slab, which must stay where they are.
    void read(DType dtype, std::span<const std::byte> data, const Layout& layout, const ScaledCast& cast);

  private:
    std::vector<float> numbers_;
    std::vector<std::uint8_t> codes8_;
    std::vector<std::uint16_t> codes16_;
};

/// The numbers of a tile that are cast, and what they are cast to.
struct Tile {
    std::int64_t top = 0, left = 0; ///< where the tile begins in its slab, in numbers
    std::int64_t rows = 0, columns = 0;
    std::span<const float> x; ///< those of the slab where they lie one behind the other, else in memory of the tile
    std::vector<float> q;

    /// Calls body() with every tile of the slab, in C order, whose numbers are transformed.
    template <class Body>
    void for_each(const Slab& slab, const Layout& layout, const GroupTransform& transform, const Body& body) {
        for (top = 0; top < slab.rows; top += layout.tile_rows)
            for (left = 0; left < slab.columns; left += layout.tile_columns) {
                read(slab, layout, transform);
                body();
            }
    }

  private:
    void read(const Slab& slab, const Layout& layout, const GroupTransform& transform);
    std::vector<float> numbers_;
};

} // namespace amp::detail

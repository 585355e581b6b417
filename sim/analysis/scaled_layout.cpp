#include <ampscope/sim/analysis/detail/scaled_layout.h>

#include <ampscope/formats/batch.h>
#include <ampscope/sim/analysis/detail/scaled_sums.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>

namespace amp::detail {

namespace {

std::int64_t numbers_of(const TensorEntry& tensor) {
    return static_cast<std::int64_t>(tensor.count) * info(tensor.dtype).numbers();
}

/// Decodes packed codes by way of `codes`, whose alignment they may lack.
template <class Code>
void decode_codes(const FormatSpec& format, std::span<const std::byte> data, std::vector<Code>& codes,
                  std::span<float> out) {
    codes.resize(out.size());
    std::memcpy(codes.data(), data.data(), data.size());
    decode(format, std::span<const Code>(codes), out);
}

/// The number of blocks in a line that scales are chosen for together.
std::int64_t blocks_of_group(const BlockScaling& scaling) {
    return scaling.rule == ScaleRule::ms_eden ? scaling.blocks_in(EdenSums::group) : 1;
}

} // namespace

std::pair<std::int64_t, std::int64_t> matrix_of(const TensorEntry& tensor) {
    const std::int64_t numbers = numbers_of(tensor),
                       last = tensor.shape.empty() ? 1 : static_cast<std::int64_t>(tensor.shape.back()),
                       columns = std::max<std::int64_t>(last * info(tensor.dtype).numbers(), 1);
    return {numbers / columns, columns};
}

Layout layout_of(const TensorEntry& tensor, const ScaledCast& cast) {
    constexpr std::int64_t few = 1 << 14, many = scaled_piece, high = 512; // numbers, numbers, rows
    auto [rows, columns] = matrix_of(tensor);
    Layout layout{.scaling = cast.scaling,
                  .rows = rows,
                  .columns = columns,
                  .grid = {},
                  .slab = 0,
                  .tile_rows = 1,
                  .tile_columns = 0};
    if (tensor.storage_order) {
        layout.transposed = true;
        std::swap(layout.rows, layout.columns);
        std::swap(layout.scaling.rows, layout.scaling.columns);
    }
    layout.grid = layout.scaling.grid(layout.rows, layout.columns);
    const std::int64_t height = layout.grid.height, width = layout.grid.width;
    // Packed numbers of fewer than 8 bits are read in whole bytes.
    const std::int64_t whole = info(tensor.dtype).number_bits() < 8 ? 8 : 1;
    const auto multiple = [](std::int64_t unit, std::int64_t least) { return (least + unit - 1) / unit * unit; };
    const auto product = [](std::int64_t a, std::int64_t b) { // of sizes that a file may claim
        constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
        return a > most / 2 / b ? most : a * b;
    };
    const bool single = layout.grid.count() == 1;
    const bool consecutive = layout.rows == 1 || (height == 1 && layout.columns % width == 0);
    const bool in_lines =
        layout.scaling.upper.lines() || layout.scaling.rule == ScaleRule::ms_eden; // which end with rows
    const bool whole_blocks = layout.scaling.rule == ScaleRule::affine; // whose ranges are found slab by slab
    if (!cast.transform.apply && !in_lines &&
        (single ? !whole_blocks : consecutive)) { // blocks of consecutive numbers: one row
        layout.columns *= layout.rows;
        layout.rows = 1;
        layout.parts = single;
        layout.scaling.rows = single ? 0 : 1;
        layout.scaling.columns = single ? 0 : width;
        layout.slab = single ? many : width > few ? product(width, whole) : multiple(width * whole, few);
        layout.tile_columns = layout.slab;
        return layout;
    }
    layout.parts = layout.scaling.rows == 0 && layout.rows > high && !whole_blocks;
    const bool transforms = cast.transform.apply != nullptr;
    const std::int64_t group_rows = transforms ? cast.transform.rows : 1,
                       group_columns = transforms ? cast.transform.columns : 1;
    const std::int64_t group = blocks_of_group(layout.scaling), down = layout.scaling.stands() ? group : 1;
    const std::int64_t line = std::lcm(layout.parts ? 1 : height * down, group_rows);
    const std::int64_t least = layout.parts ? std::max(high, many / layout.columns) : few / layout.columns;
    layout.slab = product(multiple(std::lcm(line, whole), std::max<std::int64_t>(least, 1)), layout.columns);
    layout.tile_rows = layout.slab / layout.columns;
    layout.tile_columns = layout.columns;
    // Sums of squares are added block by block in C order: a part of the columns has one line of blocks.
    const std::int64_t unit = std::lcm(width * (group / down), group_columns),
                       part = multiple(unit, std::max<std::int64_t>(many / std::min(line, layout.rows), 1));
    if (!layout.parts && line == height && part < layout.columns) {
        layout.tile_rows = line;
        layout.tile_columns = part;
    }
    return layout;
}

void Slab::read(DType dtype, std::span<const std::byte> data, const Layout& layout, const ScaledCast& cast) {
    const DTypeInfo& type = info(dtype);
    const int bits = type.number_bits();
    const bool coded = type.kind == NumberKind::format || type.kind == NumberKind::complex64;
    const auto count = data.size() * 8 / static_cast<std::size_t>(bits);
    columns = layout.rows == 1 ? static_cast<std::int64_t>(count) : layout.columns;
    rows = static_cast<std::int64_t>(count) / columns;
    if (coded && bits == 32 && cast.recorded_scale == 1) {
        x = {reinterpret_cast<const float*>(data.data()), count}; // aligned: whole numbers from the start of a buffer
        return;
    }
    numbers_.resize(count);
    if (coded && bits == 32) std::memcpy(numbers_.data(), data.data(), data.size());
    else if (coded && bits == 16) decode_codes(format(type.format), data, codes16_, numbers_);
    else if (coded && bits == 8) decode_codes(format(type.format), data, codes8_, numbers_);
    else
        for_each_number(dtype, data, [&](std::size_t i, std::uint64_t number) {
            numbers_[i] = static_cast<float>(value_of(unpack_number(dtype, number)));
        });
    if (cast.recorded_scale != 1)
        for (float& value : numbers_) value = static_cast<float>(static_cast<double>(value) / cast.recorded_scale);
    x = numbers_;
}

void Tile::read(const Slab& slab, const Layout& layout, const GroupTransform& transform) {
    rows = std::min(layout.tile_rows, slab.rows - top);
    columns = std::min(layout.tile_columns, slab.columns - left);
    const float* from = slab.x.data() + top * slab.columns + left;
    x = {from, static_cast<std::size_t>(rows * columns)};
    if ((rows > 1 && columns < slab.columns) || transform.apply) {
        numbers_.resize(x.size());
        for (std::int64_t row = 0; row < rows; ++row, from += slab.columns)
            std::copy_n(from, columns, numbers_.data() + row * columns);
        if (transform.apply) transform.apply(numbers_, columns);
        x = numbers_;
    }
}

} // namespace amp::detail

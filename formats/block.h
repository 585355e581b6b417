// Scaled tensors: numbers of a narrow format q with a scale d for each block of them, x ~ q * d. The table of block
// formats; scale_rule.h says how libraries choose the scale.
#pragma once

#include <ampscope/formats/batch.h>
#include <ampscope/formats/scale_rule.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace amp {

/// A block format: its elements, the block that shares a scale (rows x columns; 0: the tensor's own), the usual rule.
struct BlockSpec {
    std::string_view name;
    FormatSpec element;
    int rows, columns;
    ScaleRule rule;
    std::string_view source;
};

inline constexpr std::array block_formats = {
    BlockSpec{"mxfp8", format("e4m3"), 1, 32, ScaleRule::mx_floor, "OCP MX 1.0: E4M3, E8M0 scales"},
    BlockSpec{"mxfp8-e5m2", format("e5m2"), 1, 32, ScaleRule::mx_floor, "OCP MX 1.0: E5M2, E8M0 scales"},
    BlockSpec{"mxfp6", format("e2m3"), 1, 32, ScaleRule::mx_floor, "OCP MX 1.0: E2M3, E8M0 scales"},
    BlockSpec{"mxfp6-e3m2", format("e3m2"), 1, 32, ScaleRule::mx_floor, "OCP MX 1.0: E3M2, E8M0 scales"},
    BlockSpec{"mxfp4", format("e2m1"), 1, 32, ScaleRule::mx_floor, "OCP MX 1.0: E2M1, E8M0 scales"},
    BlockSpec{"mxint8", format("mxint8"), 1, 32, ScaleRule::mx_floor, "OCP MX 1.0: INT8, E8M0 scales"},
    BlockSpec{"mxint8sym", format("mxint8sym"), 1, 32, ScaleRule::mx_floor, "the same without -2 (arXiv:2510.25602)"},
    BlockSpec{"nvfp4", format("e2m1"), 1, 16, ScaleRule::nvfp4, "TE NVFP4BlockScaling: E2M1, E4M3 and FP32 scales"},
    BlockSpec{"fp8-1x128", format("e4m3"), 1, 128, ScaleRule::te_pow2, "TE Float8BlockScaling of activations"},
    BlockSpec{"fp8-128x128", format("e4m3"), 128, 128, ScaleRule::te_pow2, "TE Float8BlockScaling of weights"},
    BlockSpec{"fp8-row", format("e4m3"), 1, 0, ScaleRule::torchao_pow2, "torchao rowwise"},
    BlockSpec{"fp8-tensor", format("e4m3"), 0, 0, ScaleRule::te, "TE Float8CurrentScaling"},
    BlockSpec{"int8-tensor", format("int8sym"), 0, 0, ScaleRule::te, "symmetric: x * (127 / amax) to nearest"},
    BlockSpec{"int8-row", format("int8sym"), 1, 0, ScaleRule::te, "the same by channels, such as rows of weights"},
    BlockSpec{"int8-1x128", format("int8sym"), 1, 128, ScaleRule::te, "the same in groups of 128"},
    BlockSpec{"int4-1x128", format("int4sym"), 1, 128, ScaleRule::te, "symmetric: x * (7 / amax), groups of 128"},
    BlockSpec{"int8-affine-tensor", format("int8"), 0, 0, ScaleRule::affine, "ONNX DynamicQuantizeLinear"},
    BlockSpec{"int8-affine-row", format("int8"), 1, 0, ScaleRule::affine, "the same by rows: tokens, or channels"},
    BlockSpec{"int4-affine-1x128", format("int4"), 1, 128, ScaleRule::affine, "the same in 16 steps, groups of 128"},
};

/// The block format of that name. Throws std::invalid_argument, listing the names, for any other.
constexpr const BlockSpec& block_format(std::string_view name) { return find_row("block format", block_formats, name); }

/// How a tensor in C order is divided into blocks: its number of columns, height and width of a block, and the number
/// of blocks below and beside each other.
struct BlockGrid {
    std::int64_t columns = 1, height = 1, width = 1, down = 1, across = 1;

    [[nodiscard]] constexpr std::int64_t count() const { return down * across; }
    /// The index of the block that holds the element at that row and column.
    [[nodiscard]] constexpr std::int64_t at(std::int64_t row, std::int64_t column) const {
        return row / height * across + column / width;
    }
    /// The index of the block that holds the element of that index.
    [[nodiscard]] constexpr std::int64_t of(std::int64_t element) const {
        return at(element / columns, element % columns);
    }
    /// The number of blocks that hold an element with an index of [begin, end).
    [[nodiscard]] constexpr std::int64_t with_elements(std::int64_t begin, std::int64_t end) const {
        std::int64_t count = 0;
        while (begin < end) { // in each line of blocks
            const std::int64_t next = std::min(end, (begin / columns / height + 1) * height * columns), last = next - 1,
                               first_block = begin % columns / width, last_block = last % columns / width,
                               rows = last / columns - begin / columns + 1;
            // Of two rows the first goes on to the right end, the second begins at the left one.
            count += rows == 1   ? last_block - first_block + 1
                     : rows == 2 ? std::min(across, across - first_block + last_block + 1)
                                 : across;
            begin = next;
        }
        return count;
    }
};

/// How a tensor is scaled: in blocks of rows x columns; 0 stands for the whole height or width of the tensor.
///
/// With upper scales, x ~ q * d * u / divisor: u is the amax of the tensor, or of the line of blocks (Quartet II: what
/// it is divided by). Reading a tensor, TE computes FP32(FP32(d * u) * FP32(1 / divisor)); a product has the factor
/// FP32(FP32(u u') * FP32(1 / divisors)) (nvfp4.cu, compute_nvfp4_per_tensor_scale_kernel). So what numbers are read
/// with is not quite the inverse of what they are multiplied by.
struct BlockScaling {
    FormatSpec element = format("e4m3");
    std::int64_t rows = 0, columns = 0;
    ScaleRule rule = ScaleRule::te;
    UpperScales upper{};
    FormatSpec scale = fp32_format();       ///< scales by the rule amax have it; others: scale_format()
    Rounding scale_rounding = Rounding::up; ///< scales by the rule amax are rounded so
    /// The amax of a block, or its range, is multiplied by it before the scale follows: larger numbers are clipped.
    float clip = 1;

    [[nodiscard]] constexpr FormatSpec scale_format() const {
        return rule == ScaleRule::amax ? scale : amp::scale_format(rule);
    }
    [[nodiscard]] constexpr AmaxScales amax_scales() const { return {element, scale, scale_rounding}; }
    [[nodiscard]] constexpr BlockGrid grid(std::int64_t of_rows, std::int64_t of_columns) const {
        const std::int64_t height = rows == 0 ? std::max<std::int64_t>(of_rows, 1) : rows,
                           width = columns == 0 ? std::max<std::int64_t>(of_columns, 1) : columns;
        return {.columns = of_columns,
                .height = height,
                .width = width,
                .down = (of_rows + height - 1) / height,
                .across = (of_columns + width - 1) / width};
    }
    /// Whether a line of blocks is a column of the tensor.
    [[nodiscard]] constexpr bool stands() const { return rows > columns; }
    /// The number of upper scales, and which of them a block has. Blocks in lines are one element across.
    [[nodiscard]] constexpr std::int64_t upper_count(std::int64_t of_rows, std::int64_t of_columns) const {
        return !upper.lines() ? 1 : stands() ? of_columns : of_rows;
    }
    [[nodiscard]] constexpr std::int64_t upper_of(const BlockGrid& grid, std::int64_t block) const {
        return !upper.lines() ? 0 : stands() ? block % grid.across : block / grid.across;
    }
    [[nodiscard]] constexpr float upper_divisor() const {
        return rule == ScaleRule::nvfp4 ? static_cast<float>(6 * upper.e4m3_max) : 1;
    }
    /// The upper scale of a tensor or line with that amax.
    [[nodiscard]] constexpr float upper_scale(float amax) const {
        if (rule == ScaleRule::amax) return upper.level == UpperLevel::none ? 1 : amax_scales().upper(amax);
        const bool quartet = rule == ScaleRule::quartet || rule == ScaleRule::ms_eden;
        return quartet ? quartet_upper_scale(rule, amax, upper.e4m3_max) : amax;
    }
    [[nodiscard]] constexpr RoundingError rounding_error() const {
        return {rule, upper_divisor(), upper.four_over_six == FourOverSix::mse};
    }
    /// What block_scale() wants to know of the upper scale.
    [[nodiscard]] constexpr float tensor_scale(float upper_scale) const {
        return rule == ScaleRule::nvfp4 ? nvfp4_tensor_scale(upper_scale, upper.e4m3_max) : upper_scale;
    }
    /// The number of blocks in so many numbers along a line of blocks.
    [[nodiscard]] constexpr std::int64_t blocks_in(std::int64_t numbers) const {
        const std::int64_t length = std::max(rows, columns);
        return length == 0 ? 1 : std::max<std::int64_t>(numbers / length, 1);
    }
    /// Whether the amax of a block and the upper scale say all about its scale.
    [[nodiscard]] constexpr bool scales_by_amax() const {
        return upper.four_over_six == FourOverSix::off && rule != ScaleRule::ms_eden && rule != ScaleRule::affine;
    }
    /// The scale of a block that follows from its amax, or from its range, before the block chooses or corrects it.
    [[nodiscard]] constexpr BlockScale scale_of(float amax, float tensor_scale = 1) const {
        const float most = clip == 1 ? amax : detail::fp32_mul(amax, clip);
        if (rule == ScaleRule::amax) return amax_scales().of(most, tensor_scale);
        return block_scale(rule, element, most, tensor_scale);
    }
    [[nodiscard]] constexpr BlockScale scale_of(const BlockRange& range) const {
        return affine_scale(
            element, {.least = detail::fp32_mul(range.least, clip), .largest = detail::fp32_mul(range.largest, clip)});
    }
    /// The format of what is stored: the element, or one bit more where zero points were subtracted.
    [[nodiscard]] constexpr FormatSpec stored() const {
        if (rule != ScaleRule::affine) return element;
        const char name[] = {'i', 'n', 't', static_cast<char>('1' + element.bits())};
        return detail::integer_format({name, 4}, element.bits() + 1, 0, Negatives::twos_complement);
    }
    /// What numbers are multiplied by to read them: x ~ q * factor.
    [[nodiscard]] constexpr float factor(float decode, float upper_scale) const {
        if (!has_upper_scales(rule)) return decode;
        return detail::fp32_mul(detail::fp32_mul(decode, upper_scale), detail::fp32_div(1, upper_divisor()));
    }
    bool operator==(const BlockScaling&) const = default;
};

/// How a row of the table scales a tensor.
constexpr BlockScaling scaling_of(const BlockSpec& row) {
    return {.element = row.element, .rows = row.rows, .columns = row.columns, .rule = row.rule};
}

/// Which magnitudes count.
enum class Magnitudes : std::uint8_t { all, not_nan, finite };

/// The largest magnitude of these numbers; 0 if none counts. Of `all`: NaN if one is.
float largest_magnitude(std::span<const float> x, Magnitudes counted);

/// The range of each block of the grid.
std::vector<BlockRange> block_ranges(const BlockScaling& scaling, std::span<const float> in, std::int64_t rows,
                                     std::int64_t columns);

/// The largest magnitude of each block of the grid.
std::vector<float> block_amax(const BlockScaling& scaling, std::span<const float> in, std::int64_t rows,
                              std::int64_t columns);

/// The upper scales of a tensor whose blocks have these amaxes: one, or one for each line.
std::vector<float> upper_scales(const BlockScaling& scaling, std::span<const float> amax, std::int64_t rows,
                                std::int64_t columns);

/// The scales of blocks that have these amaxes below these upper scales. Where blocks choose (FourOverSix), by the
/// errors of numbers rounded to nearest, added up as in TE's quantize_4over6_nvfp4.cuh: those of a line of a block in
/// order, those of its lines as a tree. `in` has whole blocks.
/// MS-EDEN rounds scales with the random words of that key, whose indices are those of blocks.
std::vector<BlockScale> block_scales(const BlockScaling& scaling, std::span<const float> in, std::int64_t rows,
                                     std::int64_t columns, std::span<const float> amax, std::span<const float> upper,
                                     const RandomKey& key = {}, std::uint64_t first_block = 0);

/// out = in (rows x columns in C order), scaled by `scales`, one a block, and rounded as quantize_scaled does. Throws
/// std::invalid_argument if only some of the scales divide, as those of no rule do.
void quantize_blocks(const BlockScaling& scaling, std::span<const float> in, std::int64_t rows, std::int64_t columns,
                     std::span<const BlockScale> scales, std::span<float> out, const BatchOptions& options = {});

/// The same with the scales that the rule gives the tensor. Returns what each block is read with, in C order:
/// BlockScaling::factor().
std::vector<float> quantize_blocks(const BlockScaling& scaling, std::span<const float> in, std::int64_t rows,
                                   std::int64_t columns, std::span<float> out, const BatchOptions& options = {});

/// out = in * the decode scale of its block, in FP32: the way back from quantize_blocks(), for users of the library.
void dequantize_blocks(const BlockScaling& scaling, std::span<const float> in, std::int64_t rows, std::int64_t columns,
                       std::span<const float> decode_scales, std::span<float> out);

} // namespace amp

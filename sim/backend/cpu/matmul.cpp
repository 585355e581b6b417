#include <ampscope/sim/backend/cpu/detail/matmul.h>

#include <ampscope/formats/batch.h>
#include <ampscope/sim/backend/cpu/detail/panels.h>
#include <ampscope/sim/backend/cpu/detail/product_tile.h>
#include <ampscope/sim/backend/cpu/detail/transpose.h>
#include <ampscope/sim/base/parallel.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <vector>

namespace amp::cpu {

namespace {

/// Copies `panels` panels of `width` rows: to[p * depth + l * width + i] = from[l * stride + p + i].
template <std::int64_t width>
struct CopyKernel {
    AMPSCOPE_KERNEL void run(const float* from, std::int64_t stride, std::int64_t panels, std::int64_t k, float* to,
                             std::int64_t depth) {
        for (std::int64_t l = 0; l < k; ++l)
            for (std::int64_t p = 0; p < panels * width; p += width)
                std::memcpy(to + p * depth + l * width, from + l * stride + p, width * sizeof(float));
    }
};

/// Packs panels of `width` rows of x, whose first k columns begin panels of `depth` columns: to[p * depth + l * width +
/// i] = x(p + i, l), with zeros beyond the last row.
template <std::int64_t width>
void pack(InstructionSet set, MatrixView x, std::int64_t rows, std::int64_t k, float* to, std::int64_t depth) {
    const std::int64_t whole = rows / width * width, left = rows - whole;
    if (left > 0) std::fill_n(to + whole * depth, width * k, 0.0F);
    if (x.row_stride == 1) { // two panels at once, so that memory is read in longer runs
        for (std::int64_t p = 0; p < whole; p += 2 * width)
            dispatch<CopyKernel<width>>(set, x.data + p, x.column_stride,
                                        std::min<std::int64_t>(2, (whole - p) / width), k, to + p * depth, depth);
        for (std::int64_t l = 0; l < k; ++l)
            std::copy_n(x.data + l * x.column_stride + whole, left, to + whole * depth + l * width);
        return;
    }
    for (std::int64_t p = 0; p < rows; p += width) {
        const float* const from = x.data + p * x.row_stride;
        const std::int64_t lines = std::min(width, rows - p);
        if (x.column_stride == 1) {
            dispatch<TransposeKernel<width>>(set, from, x.row_stride, lines, k, to + p * depth);
            continue;
        }
        for (std::int64_t i = 0; i < lines; ++i)
            for (std::int64_t l = 0; l < k; ++l)
                to[p * depth + l * width + i] = from[i * x.row_stride + l * x.column_stride];
    }
}

/// Decodes lines that begin `stride` codes apart, and prefetches as many that begin at `next`, to be decoded later.
void decode_lines(const FormatSpec& format, const std::uint16_t* from, const std::uint16_t* next, std::int64_t stride,
                  std::int64_t lines, std::int64_t length, float* to) {
    constexpr std::int64_t cache_line = 32, at_once = 1024; // codes
    const std::int64_t all = lines * length;
    if (stride == length && length < at_once) stride = length = std::min(at_once, all); // one line after the other
    for (std::int64_t begin = 0; begin < all; begin += length, from += stride, next += stride) {
        const std::int64_t n = std::min(length, all - begin);
        for (std::int64_t c = 0; c < n; c += cache_line) __builtin_prefetch(next + c, 0, 2);
        decode(format, std::span(from, static_cast<std::size_t>(n)),
               std::span(to + begin, static_cast<std::size_t>(n)));
    }
}

/// The same for encoded elements, decoded in parts that stay in the first-level cache.
template <std::int64_t width>
void pack_encoded(InstructionSet set, MatrixView x, std::int64_t rows, std::int64_t k, float* to) {
    constexpr std::int64_t size = 8192;
    alignas(64) float part[size];
    const bool by_rows = x.column_stride == 1; // rows lie in order; else columns do
    const std::int64_t tall = by_rows ? width : rows, wide = std::max<std::int64_t>(size / tall, 1);
    for (std::int64_t p = 0; p < rows; p += tall)
        for (std::int64_t l = 0; l < k; l += wide) {
            const std::int64_t height = std::min(tall, rows - p), columns = std::min(wide, k - l);
            const std::uint16_t* const from = x.encoded + p * x.row_stride + l * x.column_stride;
            const std::uint16_t* const next =
                l + wide < k ? from + wide * x.column_stride : from - l * x.column_stride + height * x.row_stride;
            if (by_rows) decode_lines(x.format, from, next, x.row_stride, height, columns, part);
            else decode_lines(x.format, from, next, x.column_stride, columns, height, part);
            const MatrixView decoded = by_rows ? MatrixView{part, columns, 1} : MatrixView{part, 1, height};
            pack<width>(set, decoded, height, columns, to + p * k + l * width, k);
        }
}

/// An operand with its decode scales; a scale's data are null if there are none.
struct Operand {
    MatrixView values, scales;

    /// With lines from `line` on, and from number `l` along k.
    [[nodiscard]] Operand from(std::int64_t line, std::int64_t l, std::int64_t block) const {
        Operand part = *this;
        const std::int64_t begin = line * values.row_stride + l * values.column_stride;
        if (values.encoded != nullptr) part.values.encoded += begin;
        else part.values.data += begin;
        if (scales.data != nullptr) part.scales.data += line * scales.row_stride + l / block * scales.column_stride;
        return part;
    }
};

/// Packs `width` lines at once: see pack().
template <std::int64_t width>
struct PackedOperand {
    Panels<float> values, scales;

    /// x, where it lies if `tiles` tiles can read it there at no cost, else packed. They read lines in multiples of
    /// `unit`, and, `by_lines`, lines whose numbers lie in order.
    Lines lines(InstructionSet set, const Operand& x, std::int64_t count, std::int64_t k, std::int64_t blocks,
                std::int64_t tiles, std::int64_t unit, bool by_lines) {
        const MatrixView& v = x.values;
        // What lies farther apart shares few sets of the caches, and each number or line is on a page of its own.
        constexpr std::int64_t near_steps = 128, near_lines = 512;
        const bool in_place = v.row_stride == 1
                                  ? tiles <= 2 || v.column_stride <= near_steps
                                  : by_lines && v.column_stride == 1 && (tiles == 1 || v.row_stride <= near_lines);
        if (in_place && count % unit == 0 && v.encoded == nullptr && x.scales.data == nullptr)
            return {v.data, v.row_stride, v.row_stride, v.column_stride};
        const std::int64_t padded = (count + width - 1) / width * width;
        float* const to = values.resize(padded * k);
        if (v.encoded != nullptr) pack_encoded<width>(set, v, count, k, to);
        else pack<width>(set, v, count, k, to, k);
        if (x.scales.data != nullptr) pack<width>(set, x.scales, count, blocks, scales.resize(padded * blocks), blocks);
        return {to, k, 1, width};
    }
};

/// Computes `tall` rows of the product, tile by tile; t is the first.
template <int rows, int columns, bool fused>
void make_rows(InstructionSet set, Tile t, std::int64_t tall, std::int64_t width) {
    const std::int64_t blocks = (t.k + t.block - 1) / t.block;
    const float* const below = t.out + rows * t.stride;
    for (std::int64_t j = 0; j < width; j += columns) {
        // Prefetches the next tile's output: waiting for it would take a good part of a tile's time.
        const float* const next = j + columns < width ? t.out + columns : below;
        for (std::int64_t r = 0; r < tall; ++r)
            for (std::int64_t c = 0; c < columns; c += 16) __builtin_prefetch(next + r * t.stride + c, 1);
        make_tile<rows, columns, fused>(set, t, tall, std::min<std::int64_t>(columns, width - j));
        t.b.data += columns * t.b.panel;
        t.out += columns;
        if (t.b_scales != nullptr) t.b_scales += columns * blocks;
        t.ending = t.ending.from(0, columns);
    }
}

/// A product, or one thread's part of it, without the operands.
struct Result {
    float* out;
    Ending ending;
    std::int64_t stride, m, n, k, block;
};

/// Computes it in blocks: of a's lines, which the last-level cache holds, then of b's, its columns, which the
/// second-level cache holds. `done` is called for rows that the latter still holds.
template <int rows, int columns, bool fused>
void multiply(InstructionSet set, const Operand& a, const Operand& b, const Result& r, const PartDone& done) {
    constexpr std::int64_t block_m = 1032, block_n = 512, results_at_once = 8192;
    const std::int64_t block_k = r.block < 512 ? 512 / r.block * r.block : r.block;
    static thread_local PackedOperand<rows> own_a;
    static thread_local PackedOperand<columns> own_b;
    const bool scaled = a.scales.data != nullptr;
    const std::int64_t down = (r.m + rows - 1) / rows, across = (r.n + columns - 1) / columns; // tiles
    for (std::int64_t i0 = 0; i0 < r.m; i0 += block_m)
        for (std::int64_t l = 0; l < r.k; l += block_k) {
            const std::int64_t height = std::min(block_m, r.m - i0), depth = std::min(block_k, r.k - l);
            const std::int64_t blocks = (depth + r.block - 1) / r.block;
            const Lines x =
                own_a.lines(set, a.from(i0, l, r.block), height, depth, blocks, across, third_of<rows>, true);
            for (std::int64_t j0 = 0; j0 < r.n; j0 += block_n) {
                const std::int64_t width = std::min(block_n, r.n - j0);
                const Lines y = own_b.lines(set, b.from(j0, l, r.block), width, depth, blocks, down, columns, false);
                const std::int64_t some = std::max<std::int64_t>(results_at_once / width / rows, 1) * rows;
                for (std::int64_t i1 = 0; i1 < height; i1 += some) {
                    const std::int64_t end = std::min(i1 + some, height);
                    for (std::int64_t i = i1; i < end; i += rows)
                        make_rows<rows, columns, fused>(
                            set,
                            {.a = {x.data + i * x.panel, x.panel, x.line, x.step},
                             .b = y,
                             .a_scales = scaled ? own_a.scales.data() + i * blocks : nullptr,
                             .b_scales = scaled ? own_b.scales.data() : nullptr,
                             .ending = r.ending.from(i0 + i, j0),
                             .out = r.out + (i0 + i) * r.stride + j0,
                             .stride = r.stride,
                             .k = depth,
                             .block = r.block,
                             .begins = l == 0,
                             .ends = l + depth == r.k},
                            std::min<std::int64_t>(rows, end - i), width);
                    if (done && l + depth == r.k) done(i0 + i1, j0, {end - i1, width});
                }
            }
        }
}

} // namespace

ProductPart part_of_product(std::int64_t m, std::int64_t n, std::int64_t k, int threads) {
    constexpr std::int64_t undivided = 1 << 19, least_work = 1 << 17; // multiply-adds: waking threads takes a while
    constexpr std::int64_t unit = 64; // packing the operands of fewer lines would cost more than their products
    const std::int64_t work = m * n * k;
    const std::int64_t parts =
        work < undivided ? 1 : std::clamp<std::int64_t>(work / least_work, 1, thread_count(threads));
    const std::int64_t length = std::max(m, n), share = std::min(length, share_of(length, parts, unit));
    const std::int64_t cuts = (length + share - 1) / share;
    const std::int64_t other = std::min(std::min(m, n), share_of(std::min(m, n), parts / cuts, unit));
    return m >= n ? ProductPart{share, other} : ProductPart{other, share};
}

void matmul(MatrixView a, MatrixView b, float* out, std::int64_t m, std::int64_t n, std::int64_t k, int threads,
            InstructionSet set, const BlockScales& scales, const float* bias, const PartDone& done) {
    if (m == 0 || n == 0) return;
    if (k == 0) {
        for (std::int64_t i = 0; i < m * n; ++i) out[i] = bias == nullptr ? 0 : kernels::named(0.0F + bias[i % n]);
        if (done) done(0, 0, {m, n});
        return;
    }
    if (n == 1 && m > 1) { // a column of numbers lies as a row does, which fills tiles
        const std::vector<float> biases(static_cast<std::size_t>(bias == nullptr ? 0 : m), bias == nullptr ? 0 : *bias);
        PartDone turned;
        if (done) turned = [&](std::int64_t i, std::int64_t j, ProductPart p) { done(j, i, {p.columns, p.rows}); };
        return matmul(b.transposed(), a.transposed(), out, n, m, k, threads, set,
                      {scales.block, scales.b.transposed(), scales.a.transposed()},
                      bias == nullptr ? nullptr : biases.data(), turned);
    }
    std::vector<float> of_rows, of_columns;
    Operand left{a, scales.a}, right{b.transposed(), scales.b.transposed()};
    if (scales.block >= k) { // complete sums are scaled
        for (std::int64_t i = 0; i < m; ++i) of_rows.push_back(scales.a.data[i * scales.a.row_stride]);
        for (std::int64_t j = 0; j < n; ++j) of_columns.push_back(scales.b.data[j * scales.b.column_stride]);
        left.scales = right.scales = {};
    }
    const bool scaled = left.scales.data != nullptr;
    const ProductPart part = part_of_product(m, n, k, threads);
    const std::int64_t across = (n + part.columns - 1) / part.columns, down = (m + part.rows - 1) / part.rows;
    const std::int64_t block = scaled ? scales.block : 1;
    const Ending ending{of_rows.empty() ? nullptr : of_rows.data(), of_rows.empty() ? nullptr : of_columns.data(),
                        bias};
    for_each_chunk(static_cast<std::uint64_t>(across * down), 1, threads, [&](std::uint64_t index, std::uint64_t) {
        const auto at = static_cast<std::int64_t>(index);
        const std::int64_t i = at / across * part.rows, j = at % across * part.columns;
        const std::int64_t height = std::min(part.rows, m - i), width = std::min(part.columns, n - j);
        const Operand x = left.from(i, 0, block), y = right.from(j, 0, block);
        const Result r{out + i * n + j, ending.from(i, j), n, height, width, k, block};
        PartDone placed;
        if (done) placed = [&](std::int64_t row, std::int64_t column, ProductPart p) { done(i + row, j + column, p); };
        switch (set) {
        case InstructionSet::avx512: multiply<12, 32, true>(set, x, y, r, placed); break;
        case InstructionSet::avx2: multiply<6, 16, true>(set, x, y, r, placed); break;
        case InstructionSet::baseline: multiply<2, 4, false>(set, x, y, r, placed); break;
        }
    });
}

} // namespace amp::cpu

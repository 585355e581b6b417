#include <ampscope/sim/backend/cpu/detail/matmul.h>

#include <ampscope/formats/batch.h>
#include <ampscope/sim/backend/cpu/detail/panels.h>
#include <ampscope/sim/backend/cpu/detail/transpose.h>
#include <ampscope/sim/backend/kernels/fma.h>
#include <ampscope/sim/base/parallel.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <utility>

namespace amp::cpu {

namespace {

/// Rows x columns sums, kept in registers; a[l * panel + i], b[l * columns + j].
template <int rows, int columns, bool fused, int panel>
struct Sums {
    float sum[rows][columns];

    AMPSCOPE_INLINE void add(const float* __restrict a, const float* __restrict b, std::int64_t k) {
        for (std::int64_t l = 0; l < k; ++l, a += panel, b += columns) {
#pragma GCC unroll 16
            for (int i = 0; i < rows; ++i)
#pragma GCC unroll 1 // g++ 12 would unroll 16 columns, and then not find all vectors in them
                for (int j = 0; j < columns; ++j)
                    sum[i][j] =
                        fused ? __builtin_fmaf(a[i], b[j], sum[i][j]) : detail::fma_in_double(a[i], b[j], sum[i][j]);
        }
    }
};

/// A tile of packed operands and of the product. `begins`: its sums are new, and not those in `out`; `ends`: they are
/// complete, and NaNs become 0x7fc00000.
struct Tile {
    const float *a, *b, *a_scales, *b_scales; ///< scales are null, or of each block along k, packed as operands are
    float* out;
    std::int64_t stride, k, block;
    bool begins, ends;
};

template <int rows, int columns, bool fused, int panel = rows>
struct TileKernel {
    AMPSCOPE_KERNEL void run(const Tile& t) {
        float* __restrict const out = t.out;
        Sums<rows, columns, fused, panel> sums;
#pragma GCC unroll 16
        for (int i = 0; i < rows; ++i)
            for (int j = 0; j < columns; ++j) sums.sum[i][j] = t.begins ? 0 : out[i * t.stride + j];
        sums.add(t.a, t.b, t.k);
#pragma GCC unroll 16
        for (int i = 0; i < rows; ++i)
            for (int j = 0; j < columns; ++j)
                out[i * t.stride + j] = t.ends ? kernels::named(sums.sum[i][j]) : sums.sum[i][j];
    }
};

/// With scales: the sum of each block, times both scales, is added to what is in `out`.
template <int rows, int columns, bool fused, int panel = rows>
struct ScaledTileKernel {
    AMPSCOPE_KERNEL void run(const Tile& t) {
        const float* __restrict a_scales = t.a_scales, * __restrict b_scales = t.b_scales;
        float* __restrict const out = t.out;
        for (std::int64_t l = 0; l < t.k; l += t.block, a_scales += panel, b_scales += columns) {
            const bool last = l + t.block >= t.k;
            Sums<rows, columns, fused, panel> sums{};
            sums.add(t.a + l * panel, t.b + l * columns, last ? t.k - l : t.block);
            const bool first = t.begins && l == 0, ends = t.ends && last;
#pragma GCC unroll 16
            for (int i = 0; i < rows; ++i)
                for (int j = 0; j < columns; ++j) {
                    float& total = out[i * t.stride + j];
                    const float before = first ? -0.0F : total, scale = a_scales[i] * b_scales[j]; // x + -0 is x
                    const float sum = fused ? __builtin_fmaf(sums.sum[i][j], scale, before)
                                            : detail::fma_in_double(sums.sum[i][j], scale, before);
                    total = ends ? kernels::named(sum) : sum;
                }
        }
    }
};

/// Packs panels of `width` rows of x, whose first k columns begin panels of `depth` columns: to[p * depth + l * width +
/// i] = x(p + i, l), with zeros beyond the last row.
template <std::int64_t width>
void pack(InstructionSet set, MatrixView x, std::int64_t rows, std::int64_t k, float* to, std::int64_t depth) {
    const std::int64_t whole = rows / width * width, left = rows - whole;
    if (left > 0) std::fill_n(to + whole * depth, width * k, 0.0F);
    if (x.row_stride == 1) { // a few panels at once, so that the lines of x are read in order
        constexpr std::int64_t group = 4 * width;
        for (std::int64_t p0 = 0; p0 < whole; p0 += group)
            for (std::int64_t l = 0; l < k; ++l)
                for (std::int64_t p = p0; p < std::min(p0 + group, whole); p += width)
                    std::memcpy(to + p * depth + l * width, x.data + l * x.column_stride + p, width * sizeof(float));
        for (std::int64_t l = 0; l < k; ++l)
            std::copy_n(x.data + l * x.column_stride + whole, left, to + whole * depth + l * width);
        return;
    }
    for (std::int64_t p = 0; p < rows; p += width) {
        const float* const from = x.data + p * x.row_stride;
        if (x.column_stride == 1 && p < whole) {
            dispatch<TransposeKernel<width>>(set, from, x.row_stride, k, to + p * depth);
            continue;
        }
        for (std::int64_t i = 0; i < std::min(width, rows - p); ++i)
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

template <int rows, int columns, bool fused, int panel = rows>
void run_tile(InstructionSet set, const Tile& t) {
    if (t.a_scales == nullptr) dispatch<TileKernel<rows, columns, fused, panel>>(set, t);
    else dispatch<ScaledTileKernel<rows, columns, fused, panel>>(set, t);
}

/// Computes a tile of the product, of which tall x wide numbers are needed: at the edges a third or two thirds of a
/// tile may do.
template <int rows, int columns, bool fused>
void make_tile(InstructionSet set, Tile t, std::int64_t tall, std::int64_t wide) {
    constexpr int third = rows % 3 == 0 ? rows / 3 : rows;
    const auto run = [&] {
        if (tall <= third) run_tile<third, columns, fused, rows>(set, t);
        else if (tall <= 2 * third && 2 * third < rows) run_tile<2 * third, columns, fused, rows>(set, t);
        else run_tile<rows, columns, fused>(set, t);
    };
    if (wide == columns && tall % third == 0) return run();
    float edge[rows * columns]{};
    float* const out = t.out;
    for (std::int64_t r = 0; r < tall; ++r) std::copy_n(out + r * t.stride, wide, edge + r * columns);
    const std::int64_t stride = std::exchange(t.stride, columns);
    t.out = edge;
    run();
    for (std::int64_t r = 0; r < tall; ++r) std::copy_n(edge + r * columns, wide, out + r * stride);
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

    void fill(InstructionSet set, const Operand& x, std::int64_t lines, std::int64_t k, std::int64_t blocks) {
        const std::int64_t padded = (lines + width - 1) / width * width;
        float* const to = values.resize(padded * k);
        if (x.values.encoded != nullptr) pack_encoded<width>(set, x.values, lines, k, to);
        else pack<width>(set, x.values, lines, k, to, k);
        if (x.scales.data != nullptr) pack<width>(set, x.scales, lines, blocks, scales.resize(padded * blocks), blocks);
    }
};

/// Computes one thread's part of the product, in blocks that stay in its second-level cache. b has columns as lines.
template <int rows, int columns, bool fused>
void multiply(InstructionSet set, const Operand& a, const Operand& b, float* out, std::int64_t stride, std::int64_t m,
              std::int64_t n, std::int64_t k, std::int64_t block) {
    constexpr std::int64_t block_m = 168, block_n = 512;
    const std::int64_t block_k = block < 512 ? 512 / block * block : block;
    static thread_local PackedOperand<rows> own_a;
    static thread_local PackedOperand<columns> own_b;
    PackedOperand<rows>& packed_a = own_a;
    PackedOperand<columns>& packed_b = own_b;
    const bool scaled = a.scales.data != nullptr;
    for (std::int64_t j0 = 0; j0 < n; j0 += block_n)
        for (std::int64_t l = 0; l < k; l += block_k) {
            const std::int64_t depth = std::min(block_k, k - l), width = std::min(block_n, n - j0);
            const std::int64_t blocks = (depth + block - 1) / block;
            packed_b.fill(set, b.from(j0, l, block), width, depth, blocks);
            for (std::int64_t i0 = 0; i0 < m; i0 += block_m) {
                const std::int64_t height = std::min(block_m, m - i0);
                packed_a.fill(set, a.from(i0, l, block), height, depth, blocks);
                for (std::int64_t i = 0; i < height; i += rows)
                    for (std::int64_t j = 0; j < width; j += columns) {
                        float* const to = out + (i0 + i) * stride + j0 + j;
                        const std::int64_t tall = std::min<std::int64_t>(rows, height - i);
                        const std::int64_t wide = std::min<std::int64_t>(columns, width - j);
                        // Prefetches the next tile's output: waiting for it would take a good part of a tile's time.
                        for (std::int64_t r = 0; r < tall && j + columns < width; ++r)
                            for (std::int64_t c = columns; c < 2 * columns; c += 16)
                                __builtin_prefetch(to + r * stride + c, 1);
                        make_tile<rows, columns, fused>(set,
                                                        {packed_a.values.data() + i * depth,
                                                         packed_b.values.data() + j * depth,
                                                         scaled ? packed_a.scales.data() + i * blocks : nullptr,
                                                         scaled ? packed_b.scales.data() + j * blocks : nullptr, to,
                                                         stride, depth, block, l == 0, l + depth == k},
                                                        tall, wide);
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
            InstructionSet set, const BlockScales& scales, const PartDone& done) {
    if (m == 0 || n == 0) return;
    if (k == 0) {
        std::fill_n(out, m * n, 0.0F);
        if (done) done(0, 0, {m, n});
        return;
    }
    if (n == 1 && m > 1) { // a column of numbers lies as a row does, which fills tiles
        PartDone turned;
        if (done) turned = [&](std::int64_t i, std::int64_t j, ProductPart p) { done(j, i, {p.columns, p.rows}); };
        return matmul(b.transposed(), a.transposed(), out, n, m, k, threads, set,
                      {scales.block, scales.b.transposed(), scales.a.transposed()}, turned);
    }
    const ProductPart part = part_of_product(m, n, k, threads);
    const std::int64_t across = (n + part.columns - 1) / part.columns, down = (m + part.rows - 1) / part.rows;
    const std::int64_t block = scales.block == 0 ? 1 : scales.block;
    const Operand left{a, scales.a}, right{b.transposed(), scales.b.transposed()};
    for_each_chunk(static_cast<std::uint64_t>(across * down), 1, threads, [&](std::uint64_t index, std::uint64_t) {
        const auto at = static_cast<std::int64_t>(index);
        const std::int64_t i = at / across * part.rows, j = at % across * part.columns;
        const std::int64_t height = std::min(part.rows, m - i), width = std::min(part.columns, n - j);
        const Operand x = left.from(i, 0, block), y = right.from(j, 0, block);
        float* const to = out + i * n + j;
        switch (set) {
        case InstructionSet::avx512: multiply<12, 32, true>(set, x, y, to, n, height, width, k, block); break;
        case InstructionSet::avx2: multiply<6, 16, true>(set, x, y, to, n, height, width, k, block); break;
        case InstructionSet::baseline: multiply<2, 4, false>(set, x, y, to, n, height, width, k, block); break;
        }
        if (done) done(i, j, {height, width});
    });
}

} // namespace amp::cpu

#include <ampscope/sim/cpu/matmul.h>

#include <ampscope/sim/cpu/fma.h>
#include <ampscope/sim/parallel.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <vector>

namespace amp::cpu {

namespace {

/// Begins or goes on with rows x columns sums in registers. a[l * rows + i], b[l * columns + j].
template <int rows, int columns, bool fused>
struct TileKernel {
    AMPSCOPE_KERNEL void run(const float* __restrict a, const float* __restrict b, float* __restrict out,
                             std::int64_t stride, std::int64_t k, bool begins) {
        float sum[rows][columns];
        for (int i = 0; i < rows; ++i)
            for (int j = 0; j < columns; ++j) sum[i][j] = 0;
        if (!begins)
            for (int i = 0; i < rows; ++i)
                for (int j = 0; j < columns; ++j) sum[i][j] = out[i * stride + j];
        for (std::int64_t l = 0; l < k; ++l, a += rows, b += columns) {
#pragma GCC unroll 16
            for (int i = 0; i < rows; ++i)
                for (int j = 0; j < columns; ++j)
                    sum[i][j] =
                        fused ? __builtin_fmaf(a[i], b[j], sum[i][j]) : detail::fma_in_double(a[i], b[j], sum[i][j]);
        }
        for (int i = 0; i < rows; ++i)
            for (int j = 0; j < columns; ++j) out[i * stride + j] = sum[i][j];
    }
};

/// Every NaN by its one name.
struct NanKernel {
    AMPSCOPE_KERNEL void run(float* x, std::int64_t n) {
        for (std::int64_t i = 0; i < n; ++i) x[i] = x[i] != x[i] ? std::bit_cast<float>(0x7fc00000) : x[i];
    }
};

/// to[l * width + i] = from[i * stride + l] for i < count, l < k, four by four as far as that goes.
void transpose(const float* from, std::int64_t stride, std::int64_t count, std::int64_t k, float* to,
               std::int64_t width) {
    using Four [[gnu::vector_size(16)]] = float;
    const auto load = [](const float* x) {
        Four v;
        std::memcpy(&v, x, sizeof v);
        return v;
    };
    const std::int64_t fours = count / 4 * 4, whole = k / 4 * 4;
    for (std::int64_t i = 0; i < fours; i += 4)
        for (std::int64_t l = 0; l < whole; l += 4) {
            const float* const x = from + i * stride + l;
            const Four a = load(x), b = load(x + stride), c = load(x + 2 * stride), d = load(x + 3 * stride);
            const Four ab = __builtin_shufflevector(a, b, 0, 4, 1, 5), cd = __builtin_shufflevector(c, d, 0, 4, 1, 5);
            const Four ef = __builtin_shufflevector(a, b, 2, 6, 3, 7), gh = __builtin_shufflevector(c, d, 2, 6, 3, 7);
            const Four columns[] = {
                __builtin_shufflevector(ab, cd, 0, 1, 4, 5), __builtin_shufflevector(ab, cd, 2, 3, 6, 7),
                __builtin_shufflevector(ef, gh, 0, 1, 4, 5), __builtin_shufflevector(ef, gh, 2, 3, 6, 7)};
            for (std::int64_t j = 0; j < 4; ++j) std::memcpy(to + (l + j) * width + i, &columns[j], sizeof(Four));
        }
    for (std::int64_t i = 0; i < count; ++i)
        for (std::int64_t l = i < fours ? whole : 0; l < k; ++l) to[l * width + i] = from[i * stride + l];
}

/// Panels of `width` rows of x: packed[(p * k + l) * width + i] = x(p * width + i, l), zeros beyond the last row.
void pack(MatrixView x, std::int64_t rows, std::int64_t k, std::int64_t width, std::vector<float>& packed) {
    packed.resize(static_cast<std::size_t>((rows + width - 1) / width * width * k));
    float* to = packed.data();
    for (std::int64_t p = 0; p < rows; p += width, to += width * k) {
        const std::int64_t count = std::min(width, rows - p);
        const float* from = x.data + p * x.row_stride;
        if (count < width) std::fill_n(to, width * k, 0.0F);
        if (x.column_stride == 1) {
            transpose(from, x.row_stride, count, k, to, width);
        } else if (x.row_stride == 1) {
            for (std::int64_t l = 0; l < k; ++l) std::copy_n(from + l * x.column_stride, count, to + l * width);
        } else {
            for (std::int64_t i = 0; i < count; ++i)
                for (std::int64_t l = 0; l < k; ++l) to[l * width + i] = from[i * x.row_stride + l * x.column_stride];
        }
    }
}

/// The part of the product that one thread makes, in blocks that stay in its second-level cache.
template <int rows, int columns, bool fused>
void multiply(detail::InstructionSet set, MatrixView a, MatrixView b, float* out, std::int64_t stride, std::int64_t m,
              std::int64_t n, std::int64_t k) {
    constexpr std::int64_t block_k = 256, block_m = 168, block_n = 1024;
    static thread_local std::vector<float> packed_a, packed_b;
    for (std::int64_t j0 = 0; j0 < n; j0 += block_n)
        for (std::int64_t l = 0; l < k; l += block_k) {
            const std::int64_t depth = std::min(block_k, k - l), width = std::min(block_n, n - j0);
            const float* const b_block = b.data + l * b.row_stride + j0 * b.column_stride;
            pack({b_block, b.column_stride, b.row_stride}, width, depth, columns, packed_b);
            for (std::int64_t i0 = 0; i0 < m; i0 += block_m) {
                const std::int64_t height = std::min(block_m, m - i0);
                const float* const a_block = a.data + i0 * a.row_stride + l * a.column_stride;
                pack({a_block, a.row_stride, a.column_stride}, height, depth, rows, packed_a);
                for (std::int64_t j = 0; j < width; j += columns)
                    for (std::int64_t i = 0; i < height; i += rows) {
                        const float *pa = packed_a.data() + i * depth, *pb = packed_b.data() + j * depth;
                        float* const to = out + (i0 + i) * stride + j0 + j;
                        const std::int64_t tall = std::min<std::int64_t>(rows, height - i);
                        const std::int64_t wide = std::min<std::int64_t>(columns, width - j);
                        if (l != 0) // waiting for the next tile's sums would cost a good part of a tile
                            for (std::int64_t r = rows; r < std::min<std::int64_t>(2 * rows, height - i); ++r)
                                for (std::int64_t c = 0; c < std::min<std::int64_t>(columns, width - j); c += 16)
                                    __builtin_prefetch(to + r * stride + c);
                        using Tile = TileKernel<rows, columns, fused>;
                        if (tall == rows && wide == columns) {
                            detail::dispatch<Tile>(set, pa, pb, to, stride, depth, l == 0);
                            continue;
                        }
                        float edge[rows * columns]{};
                        for (std::int64_t r = 0; r < tall; ++r) std::copy_n(to + r * stride, wide, edge + r * columns);
                        detail::dispatch<Tile>(set, pa, pb, &edge[0], std::int64_t{columns}, depth, l == 0);
                        for (std::int64_t r = 0; r < tall; ++r) std::copy_n(edge + r * columns, wide, to + r * stride);
                    }
            }
        }
    for (std::int64_t i = 0; i < m; ++i) detail::dispatch<NanKernel>(set, out + i * stride, n);
}

} // namespace

void matmul(MatrixView a, MatrixView b, float* out, std::int64_t m, std::int64_t n, std::int64_t k, int threads,
            detail::InstructionSet set) {
    if (k == 0) std::fill_n(out, m * n, 0.0F);
    if (m == 0 || n == 0 || k == 0) return;
    const bool by_rows = m >= n;
    const std::int64_t length = by_rows ? m : n, unit = 64;
    const std::int64_t share = m * n * k < (1 << 18) ? length : (length / thread_count(threads) + unit) / unit * unit;
    for_each_chunk(static_cast<std::uint64_t>(length), static_cast<std::uint64_t>(share), threads,
                   [&](std::uint64_t begin, std::uint64_t end) {
                       const auto at = static_cast<std::int64_t>(begin), count = static_cast<std::int64_t>(end - begin);
                       MatrixView x = a, y = b;
                       if (by_rows) x.data += at * a.row_stride;
                       else y.data += at * b.column_stride;
                       float* const to = out + (by_rows ? at * n : at);
                       const std::int64_t height = by_rows ? count : m, width = by_rows ? n : count;
                       switch (set) {
                       case detail::InstructionSet::avx512:
                           return multiply<12, 32, true>(set, x, y, to, n, height, width, k);
                       case detail::InstructionSet::avx2:
                           return multiply<6, 16, true>(set, x, y, to, n, height, width, k);
                       case detail::InstructionSet::baseline:
                           return multiply<2, 4, false>(set, x, y, to, n, height, width, k);
                       }
                   });
}

} // namespace amp::cpu

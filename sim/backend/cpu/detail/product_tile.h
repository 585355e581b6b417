// A tile of a matrix product, whose sums are kept in registers.
#pragma once

#include <ampscope/formats/instruction_set.h>
#include <ampscope/sim/backend/kernels/fma.h>

#include <algorithm>
#include <cstdint>
#include <utility>

namespace amp::cpu {

/// An operand as tiles read it: number l of line p + i is data[p * panel + i * line + l * step], if p begins a panel.
struct Lines {
    const float* data;
    std::int64_t panel, line, step;
};

/// What becomes of complete sums: each is multiplied by rows[i] * columns[j], and bias[j] is added, unless these are
/// null; NaNs become 0x7fc00000.
struct Ending {
    const float *rows = nullptr, *columns = nullptr, *bias = nullptr;

    /// From row i and column j on.
    [[nodiscard]] Ending from(std::int64_t i, std::int64_t j) const {
        return {rows == nullptr ? nullptr : rows + i, columns == nullptr ? nullptr : columns + j,
                bias == nullptr ? nullptr : bias + j};
    }
};

/// A tile of the operands and of the product. `begins`: its sums are new, and not those in `out`; `ends`: they are
/// complete.
struct Tile {
    Lines a, b;                       ///< their data begin this tile's panels; b's `line` is 1
    const float *a_scales, *b_scales; ///< null, or of each block along k, packed as operands are
    Ending ending;
    float* out;
    std::int64_t stride, k, block;
    bool begins, ends;
};

/// Rows x columns sums, kept in registers. Numbers of a follow each other along k if it is read `by_lines`, else from
/// line to line.
template <int rows, int columns, bool fused, bool by_lines>
struct Sums {
    float sum[rows][columns];

    AMPSCOPE_INLINE void add(const Lines& x, const Lines& y, std::int64_t k) {
        constexpr int together = 3, groups = (rows + together - 1) / together; // so that few registers hold addresses
        const float* __restrict b = y.data;
        const float* __restrict a[groups];
        for (int g = 0; g < groups; ++g) a[g] = x.data + g * together * (by_lines ? x.line : 1);
        for (std::int64_t l = 0; l < k; ++l, b += y.step) {
#pragma GCC unroll 16
            for (int i = 0; i < rows; ++i) {
                const float factor = a[i / together][i % together * (by_lines ? x.line : 1)];
#pragma GCC unroll 1 // g++ 12 would unroll 16 columns, and then not find all vectors in them
                for (int j = 0; j < columns; ++j)
                    sum[i][j] = fused ? __builtin_fmaf(factor, b[j], sum[i][j])
                                      : detail::fma_in_double(factor, b[j], sum[i][j]);
            }
#pragma GCC unroll 16
            for (int g = 0; g < groups; ++g) a[g] += by_lines ? 1 : x.step;
        }
    }
};

template <int rows, int columns, bool fused, bool by_lines>
struct TileKernel {
    AMPSCOPE_KERNEL void run(const Tile& t) {
        float* __restrict const out = t.out;
        const float* __restrict const u = t.ending.rows, * __restrict const v = t.ending.columns;
        const float* __restrict const bias = t.ending.bias;
        Sums<rows, columns, fused, by_lines> sums;
#pragma GCC unroll 16
        for (int i = 0; i < rows; ++i)
            for (int j = 0; j < columns; ++j) sums.sum[i][j] = t.begins ? 0 : out[i * t.stride + j];
        sums.add(t.a, t.b, t.k);
        if (t.ends && u != nullptr) {
#pragma GCC unroll 16
            for (int i = 0; i < rows; ++i)
                for (int j = 0; j < columns; ++j) sums.sum[i][j] *= u[i] * v[j];
        }
        if (t.ends && bias != nullptr) {
#pragma GCC unroll 16
            for (int i = 0; i < rows; ++i)
                for (int j = 0; j < columns; ++j) sums.sum[i][j] += bias[j];
        }
#pragma GCC unroll 16
        for (int i = 0; i < rows; ++i)
            for (int j = 0; j < columns; ++j)
                out[i * t.stride + j] = t.ends ? kernels::named(sums.sum[i][j]) : sums.sum[i][j];
    }
};

/// With scales: the sum of each block, times both scales, is added to what is in `out`. Operands are packed, and there
/// are no factors.
template <int rows, int columns, bool fused>
struct ScaledTileKernel {
    AMPSCOPE_KERNEL void run(const Tile& t) {
        const float* __restrict a_scales = t.a_scales, * __restrict b_scales = t.b_scales;
        float* __restrict const out = t.out;
        const float* __restrict const bias = t.ending.bias;
        Lines a = t.a, b = t.b;
        for (std::int64_t l = 0; l < t.k; l += t.block, a_scales += a.step, b_scales += columns) {
            const bool last = l + t.block >= t.k;
            Sums<rows, columns, fused, false> sums{};
            sums.add(a, b, last ? t.k - l : t.block);
            a.data += t.block * a.step;
            b.data += t.block * b.step;
            const bool first = t.begins && l == 0;
#pragma GCC unroll 16
            for (int i = 0; i < rows; ++i)
                for (int j = 0; j < columns; ++j) {
                    float& total = out[i * t.stride + j];
                    const float before = first ? -0.0F : total, scale = a_scales[i] * b_scales[j]; // x + -0 is x
                    total = fused ? __builtin_fmaf(sums.sum[i][j], scale, before)
                                  : detail::fma_in_double(sums.sum[i][j], scale, before);
                }
        }
        if (!t.ends) return;
        for (int i = 0; i < rows; ++i)
            for (int j = 0; j < columns; ++j) {
                float& total = out[i * t.stride + j];
                total = kernels::named(bias == nullptr ? total : total + bias[j]);
            }
    }
};

template <int rows, int columns, bool fused>
void run_tile(InstructionSet set, const Tile& t) {
    if (t.a_scales != nullptr) dispatch<ScaledTileKernel<rows, columns, fused>>(set, t);
    else if (t.a.line == 1) dispatch<TileKernel<rows, columns, fused, false>>(set, t);
    else dispatch<TileKernel<rows, columns, fused, true>>(set, t);
}

/// A third of a tile's rows, if they can be divided: tiles have one, two or three of them.
template <int rows>
constexpr int third_of = rows % 3 == 0 ? rows / 3 : rows;

/// Computes a tile of the product, of which tall x wide numbers are needed: at the edges a third or two thirds of a
/// tile may do.
template <int rows, int columns, bool fused>
void make_tile(InstructionSet set, Tile t, std::int64_t tall, std::int64_t wide) {
    constexpr int third = third_of<rows>;
    const auto run = [&] {
        if (tall <= third) run_tile<third, columns, fused>(set, t);
        else if (tall <= 2 * third && 2 * third < rows) run_tile<2 * third, columns, fused>(set, t);
        else run_tile<rows, columns, fused>(set, t);
    };
    if (wide == columns && tall % third == 0) return run();
    float edge[rows * columns]{}, of_rows[rows]{}, of_columns[columns]{}, bias[columns]{};
    float* const out = t.out;
    for (std::int64_t r = 0; r < tall; ++r) std::copy_n(out + r * t.stride, wide, edge + r * columns);
    const std::int64_t stride = std::exchange(t.stride, columns);
    t.out = edge;
    const auto copy = [](const float*& from, std::int64_t n, float* to) {
        if (from != nullptr) std::copy_n(from, n, to);
        if (from != nullptr) from = to;
    };
    copy(t.ending.rows, tall, of_rows);
    copy(t.ending.columns, wide, of_columns);
    copy(t.ending.bias, wide, bias);
    run();
    for (std::int64_t r = 0; r < tall; ++r) std::copy_n(edge + r * columns, wide, out + r * stride);
}

} // namespace amp::cpu

// The matrix product of the reference trainer: FP32 products added in the order of k by fused multiply-adds.
#pragma once

#include <ampscope/formats/instruction_set.h>
#include <ampscope/formats/spec.h>

#include <cstdint>
#include <functional>
#include <utility>

namespace amp::cpu {

/// A matrix in memory: element (i, j) is data[i * row_stride + j * column_stride].
struct MatrixView {
    const float* data;
    std::int64_t row_stride, column_stride;
    /// If not null, elements lie here in the 16 bits of `format`, and not in `data`. One of the strides is 1. For
    /// matmul() without scales alone.
    const std::uint16_t* encoded = nullptr;
    FormatSpec format{};
    [[nodiscard]] MatrixView transposed() const {
        MatrixView x = *this;
        std::swap(x.row_stride, x.column_stride);
        return x;
    }
};

/// Decode scales for blocks of `block` numbers along k, the last of which may be shorter: a(i, c) of row i's block c,
/// b(c, j) of column j's. A block of 0: there are none.
struct BlockScales {
    std::int64_t block = 0;
    MatrixView a{}, b{};
};

/// So many rows and columns of a product.
struct ProductPart {
    std::int64_t rows, columns;
};

/// Called by the thread that has computed a part, whose first element is at this row and column, while it is still in
/// that thread's cache.
using PartDone = std::function<void(std::int64_t row, std::int64_t column, ProductPart part)>;

/// out[i * n + j] = s_k, where s_0 = +0 and s_(l+1) = fma(a(i, l), b(l, j), s_l), each rounded to nearest-even in FP32.
/// a is m x k, b is k x n, out is m x n and overlaps neither. This order defines the op: the result has the same bits
/// for any number of threads (0: every core), vector width and blocking. Every NaN is 0x7fc00000, since processors
/// differ in the NaNs they make.
///
/// With a bias, n numbers, out = s_k + bias(j), rounded likewise.
///
/// With scales, each block has such a sum s of its own, and what the bias is added to is t_c, the total after the last:
/// t_1 = s * (a(i, 1) * b(1, j)), t_(c+1) = fma(s, a(i, c) * b(c, j), t_c).
void matmul(MatrixView a, MatrixView b, float* out, std::int64_t m, std::int64_t n, std::int64_t k, int threads = 0,
            InstructionSet set = best_instruction_set(), const BlockScales& scales = {}, const float* bias = nullptr,
            const PartDone& done = {});

/// The parts into which matmul() divides a product for threads: at most one for each. At the edges they may be smaller.
/// The longer side is cut first, then both. A part has at least 64 lines, if the product has them, and about 2^17
/// multiply-adds: less is not worth waking a thread. m, n and k are at least 1.
ProductPart part_of_product(std::int64_t m, std::int64_t n, std::int64_t k, int threads);

} // namespace amp::cpu

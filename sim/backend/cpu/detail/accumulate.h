// Matrix products with any accumulator: the fast version of formats/dot.h.
#pragma once

#include <ampscope/formats/accumulator.h>
#include <ampscope/formats/spec.h>
#include <ampscope/sim/backend/cpu/detail/matmul.h>

#include <cstdint>

namespace amp::cpu {

/// out[i * n + j] = dot(accumulator, row i of a, column j of b, 0), bit for bit, except that every NaN is 0x7fc00000. a
/// is m x k with values of a_format, b is k x n with values of b_format, out is m x n and overlaps neither. Results do
/// not depend on the number of threads (0: every core) and the instruction set.
void accumulate(const Accumulator& accumulator, const FormatSpec& a_format, const FormatSpec& b_format, MatrixView a,
                MatrixView b, float* out, std::int64_t m, std::int64_t n, std::int64_t k, int threads = 0,
                InstructionSet set = best_instruction_set());

/// Scales of a product that the accumulator applies (applies_scales), one for `block` numbers along k; those of a row
/// of a, and of a column of b, are contiguous. They are numbers of the format, or NaN.
struct ProductScalesView {
    const float *a = nullptr, *b = nullptr;
    FormatSpec format{};
    std::int64_t block = 0;
};

/// The same with scales: scaled_dot of every row and column. Scales are taken within the sums by accumulators that
/// applies_scales(), by others behind the sum of each block.
void accumulate_scaled(const Accumulator& accumulator, const FormatSpec& a_format, const FormatSpec& b_format,
                       MatrixView a, MatrixView b, const ProductScalesView& scales, float* out, std::int64_t m,
                       std::int64_t n, std::int64_t k, int threads = 0, InstructionSet set = best_instruction_set());

/// to[i] += sums[i], rounded to the format.
void add_sums(const FormatSpec& f, float* to, const float* sums, std::int64_t n);

} // namespace amp::cpu

// Matrix products with any accumulator: the fast version of formats/dot.h.
#pragma once

#include <ampscope/formats/accumulator.h>
#include <ampscope/sim/backend/cpu/detail/matmul.h>

#include <cstdint>

namespace amp::cpu {

/// out[i * n + j] = dot(accumulator, row i of a, column j of b, 0), bit for bit, except that every NaN is 0x7fc00000. a
/// is m x k with values of a_format, b is k x n with values of b_format, out is m x n and overlaps neither. Results do
/// not depend on the number of threads (0: every core) and the instruction set.
void accumulate(const Accumulator& accumulator, const FormatSpec& a_format, const FormatSpec& b_format, MatrixView a,
                MatrixView b, float* out, std::int64_t m, std::int64_t n, std::int64_t k, int threads = 0,
                InstructionSet set = best_instruction_set());

/// The same for MX blocks whose scales the accumulator applies itself (adds_mx_scales): scaled_dot of every row and
/// column. Scales are powers of two or NaN; those of a row of a, and of a column of b, are contiguous.
void accumulate_mx(const Accumulator& accumulator, const FormatSpec& a_format, const FormatSpec& b_format, MatrixView a,
                   MatrixView b, const float* a_scales, const float* b_scales, float* out, std::int64_t m,
                   std::int64_t n, std::int64_t k, int threads = 0, InstructionSet set = best_instruction_set());

} // namespace amp::cpu

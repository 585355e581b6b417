// Matrix products by any accumulator: the fast twin of formats/dot.h.
#pragma once

#include <ampscope/formats/accumulator.h>
#include <ampscope/sim/backend/cpu/detail/matmul.h>

#include <cstdint>

namespace amp::cpu {

/// out[i * n + j] = dot(accumulator, row i of a, column j of b, 0) bit for bit, but that a NaN is 0x7fc00000: a is
/// m x k of values of a_format, b is k x n of b_format, out is m x n and overlaps neither. The number of threads (0:
/// every core) and the instruction set change nothing.
void accumulate(const Accumulator& accumulator, const FormatSpec& a_format, const FormatSpec& b_format, MatrixView a,
                MatrixView b, float* out, std::int64_t m, std::int64_t n, std::int64_t k, int threads = 0,
                InstructionSet set = best_instruction_set());

/// The same of MX blocks whose scales are part of the sums (adds_mx_scales): scaled_dot of every row and column. Scales
/// are powers of two or NaN, those of a row of a, or of a column of b, side by side.
void accumulate_mx(const Accumulator& accumulator, const FormatSpec& a_format, const FormatSpec& b_format, MatrixView a,
                   MatrixView b, const float* a_scales, const float* b_scales, float* out, std::int64_t m,
                   std::int64_t n, std::int64_t k, int threads = 0, InstructionSet set = best_instruction_set());

} // namespace amp::cpu

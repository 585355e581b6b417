// Matrix products of plain arrays, for callers that have no program.
#pragma once

#include <ampscope/formats/accumulator.h>
#include <ampscope/formats/epilogue.h>

#include <cstdint>
#include <span>

namespace amp::cpu {

/// So many products of an m x k matrix and a k x n matrix.
struct ProductShape {
    std::int64_t batch = 1, m = 0, n = 0, k = 0;
};

/// out = a b for each pair of matrices, all in C order: element (i, j) is dot() of row i of a and column j of b, bit
/// for bit, but every NaN is 0x7fc00000. The accumulator takes both formats, and elements are values of them. Results
/// do not depend on `threads` (0: every core).
void product(const Accumulator& accumulator, const FormatSpec& a_format, const FormatSpec& b_format,
             std::span<const float> a, std::span<const float> b, std::span<float> out, const ProductShape& shape,
             int threads = 0);

/// The same with an epilogue: out = finish(epilogue, sum, bias[j]). The bias has a number for each column, or none.
void product(const Accumulator& accumulator, const FormatSpec& a_format, const FormatSpec& b_format,
             std::span<const float> a, std::span<const float> b, std::span<float> out, const ProductShape& shape,
             const Epilogue& epilogue, std::span<const float> bias, int threads = 0);

/// Decode scales of both operands, one for every `block` numbers along k: of a, m lines of them; of b, n lines.
struct BlockScalesOfProduct {
    std::span<const float> a, b;
    FormatSpec format; ///< the scales are values of it
    std::int64_t block = 0;
};

/// out = a b of one pair of matrices: element (i, j) is scaled_dot() of row i of a and column j of b, bit for bit, but
/// every NaN is 0x7fc00000.
void scaled_product(const Accumulator& accumulator, const FormatSpec& a_format, const FormatSpec& b_format,
                    std::span<const float> a, std::span<const float> b, const BlockScalesOfProduct& scales,
                    std::span<float> out, const ProductShape& shape, int threads = 0);

} // namespace amp::cpu

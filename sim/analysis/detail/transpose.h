// A matrix, columns to rows.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace amp::detail {

/// Copies 4 x 4 numbers, columns to rows; numbers of consecutive rows are so far apart.
inline void transpose_square(const float* from, std::int64_t from_stride, float* to, std::int64_t to_stride) {
    using Four [[gnu::vector_size(4 * sizeof(float))]] = float;
    Four a, b, c, d;
    std::memcpy(&a, from, sizeof a);
    std::memcpy(&b, from + from_stride, sizeof b);
    std::memcpy(&c, from + 2 * from_stride, sizeof c);
    std::memcpy(&d, from + 3 * from_stride, sizeof d);
    const Four ab = __builtin_shufflevector(a, b, 0, 4, 1, 5), cd = __builtin_shufflevector(c, d, 0, 4, 1, 5);
    const Four ab2 = __builtin_shufflevector(a, b, 2, 6, 3, 7), cd2 = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    a = __builtin_shufflevector(ab, cd, 0, 1, 4, 5);
    b = __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
    c = __builtin_shufflevector(ab2, cd2, 0, 1, 4, 5);
    d = __builtin_shufflevector(ab2, cd2, 2, 3, 6, 7);
    std::memcpy(to, &a, sizeof a);
    std::memcpy(to + to_stride, &b, sizeof b);
    std::memcpy(to + 2 * to_stride, &c, sizeof c);
    std::memcpy(to + 3 * to_stride, &d, sizeof d);
}

/// to[column * rows + row] = from[row * stride + column]. Not inlined, so that its places stay in registers.
[[gnu::noinline]] inline void transpose(const float* from, std::int64_t stride, std::int64_t rows, std::int64_t columns,
                                        float* to) {
    for (std::int64_t row = 0; row < rows; row += 4)
        for (std::int64_t column = 0; column < columns; column += 4)
            if (row + 4 <= rows && column + 4 <= columns)
                transpose_square(from + row * stride + column, stride, to + column * rows + row, rows);
            else
                for (std::int64_t r = row; r < std::min(row + 4, rows); ++r)
                    for (std::int64_t c = column; c < std::min(column + 4, columns); ++c)
                        to[c * rows + r] = from[r * stride + c];
}

} // namespace amp::detail

// Lines of a matrix, side by side.
#pragma once

#include <ampscope/formats/instruction_set.h>

#include <cstdint>
#include <cstring>

namespace amp::cpu {

/// to[l * width + i] = from[i * stride + l] for i < lines, at most width, and l < k, in squares of four by four. Two
/// squares are done at once, each in half of a vector. Lines of `from` are read side by side, since memory delivers
/// several at a time.
template <std::int64_t width>
struct TransposeKernel {
    using Eight [[gnu::vector_size(32)]] = float;
    using Four [[gnu::vector_size(16)]] = float;

    AMPSCOPE_KERNEL void run(const float* from, std::int64_t stride, std::int64_t lines, std::int64_t k, float* to) {
        const std::int64_t fours = lines / 4 * 4;
        std::int64_t l = 0;
        for (; l + 8 <= k; l += 8) {
#pragma GCC unroll 1
            for (std::int64_t i = 0; i < fours; i += 4) squares(from + i * stride + l, stride, to + l * width + i);
            for (std::int64_t i = fours; i < lines; ++i)
                for (std::int64_t c = l; c < l + 8; ++c) to[c * width + i] = from[i * stride + c];
        }
        for (; l < k; ++l)
            for (std::int64_t i = 0; i < lines; ++i) to[l * width + i] = from[i * stride + l];
    }

    AMPSCOPE_KERNEL void squares(const float* from, std::int64_t stride, float* to) {
        Eight row[4];
        for (int i = 0; i < 4; ++i) std::memcpy(&row[i], from + i * stride, sizeof row[i]);
        const Eight ab = __builtin_shufflevector(row[0], row[1], 0, 8, 1, 9, 4, 12, 5, 13),
                    cd = __builtin_shufflevector(row[2], row[3], 0, 8, 1, 9, 4, 12, 5, 13),
                    ef = __builtin_shufflevector(row[0], row[1], 2, 10, 3, 11, 6, 14, 7, 15),
                    gh = __builtin_shufflevector(row[2], row[3], 2, 10, 3, 11, 6, 14, 7, 15);
        const Eight columns[] = {__builtin_shufflevector(ab, cd, 0, 1, 8, 9, 4, 5, 12, 13),
                                 __builtin_shufflevector(ab, cd, 2, 3, 10, 11, 6, 7, 14, 15),
                                 __builtin_shufflevector(ef, gh, 0, 1, 8, 9, 4, 5, 12, 13),
                                 __builtin_shufflevector(ef, gh, 2, 3, 10, 11, 6, 7, 14, 15)};
#pragma GCC unroll 4
        for (int j = 0; j < 4; ++j) {
            const Four low = __builtin_shufflevector(columns[j], columns[j], 0, 1, 2, 3),
                       high = __builtin_shufflevector(columns[j], columns[j], 4, 5, 6, 7);
            std::memcpy(to + j * width, &low, sizeof low);
            std::memcpy(to + (j + 4) * width, &high, sizeof high);
        }
    }
};

} // namespace amp::cpu

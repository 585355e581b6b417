// Fused sums whose groups of products are added exactly before their scales apply (Blackwell's mxf4nvf4), for many
// columns at once: fused_dot of formats/fused_dot.h without branches.
//
// What differs from the plain code, which remains the definition: operands are integers, in units of their format's
// least number, so that a group's sum fits in 16 bits. With its scales it fits in 32; it is cut off in double, where
// the sum of a step is exact, too.
#pragma once

#include <ampscope/sim/backend/cpu/detail/fused_sum.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

namespace amp::cpu {

/// c[j] = the fused sum of c[j] and the products of a[l] and b[l * columns + j] for l < steps * k.products, in steps of
/// k.products. The scales of group g are those of a_scales[g] and b_scales[g * columns + j].
template <std::size_t bytes>
struct GroupKernel {
    static constexpr int columns = fused_columns<bytes>, most_groups = 4;

    AMPSCOPE_KERNEL void run(const FusedConstants* constants, const std::int16_t* __restrict a,
                             const std::int16_t* __restrict b, const ScaleTerm* __restrict a_scales,
                             const ScaleTerm* __restrict b_scales, std::int64_t steps, float* __restrict c) {
        const FusedConstants k = *constants;
        const int groups = k.products / k.scale_group;
        for (std::int64_t step = 0; step < steps; ++step) {
            // 1. Exact sums of groups with their scales, and the largest exponent of all terms.
            std::int32_t terms[most_groups][columns], exponents[most_groups][columns], largest[columns];
            for (int j = 0; j < columns; ++j) largest[j] = exponent_of_sum(k, c[j]);
            for (int g = 0; g < groups; ++g) {
                std::int16_t sums[columns];
                add_group(k.scale_group, a, b, sums);
                for (int j = 0; j < columns; ++j) {
                    exponents[g][j] = a_scales[g].exponent + b_scales[g * columns + j].exponent;
                    terms[g][j] = sums[j] * (a_scales[g].significand * b_scales[g * columns + j].significand);
                    largest[j] = std::max(largest[j], exponents[g][j]);
                }
                a += k.scale_group;
                b += k.scale_group * columns;
            }
            a_scales += groups;
            b_scales += groups * columns;
            // 2. Cut off in units of the last place kept, and added exactly.
            double total[columns];
            for (int j = 0; j < columns; ++j) {
                const float finite = __builtin_fabsf(c[j]) < __builtin_inff() ? c[j] : 0;
                total[j] = __builtin_trunc(finite * power<double>(k.fraction_bits - largest[j]));
            }
            for (int g = 0; g < groups; ++g)
                for (int j = 0; j < columns; ++j)
                    total[j] += __builtin_trunc(
                        terms[g][j] * power<double>(k.fraction_bits - k.group_point + exponents[g][j] - largest[j]));
            // 3. Normalised and rounded once.
            for (int j = 0; j < columns; ++j) {
                const double value = total[j] * power<double>(largest[j] - k.fraction_bits);
                c[j] = __builtin_fabsf(c[j]) < __builtin_inff() ? cut_off(value, k.kept) + 0.0F : c[j]; // no -0
            }
        }
    }

  private:
    AMPSCOPE_KERNEL int exponent_of_sum(const FusedConstants& k, float c) {
        const auto bits = std::bit_cast<std::uint32_t>(c) & 0x7fffffff;
        return bits == 0 ? k.zero_exponent : std::max(static_cast<int>(bits >> 23) - 127, k.least_exponent);
    }

    AMPSCOPE_KERNEL void add_group(int products, const std::int16_t* a, const std::int16_t* b, std::int16_t* sums) {
        using Halves [[gnu::vector_size(bytes)]] = std::int16_t;
        constexpr int vectors = columns * sizeof(std::int16_t) / bytes;
        Halves total[vectors]{};
        for (int l = 0; l < products; ++l)
            for (int v = 0; v < vectors; ++v) {
                Halves line;
                std::memcpy(&line, b + l * columns + v * static_cast<int>(bytes / sizeof(std::int16_t)), sizeof line);
                total[v] += a[l] * line;
            }
        std::memcpy(sums, total, sizeof total);
    }
};

} // namespace amp::cpu

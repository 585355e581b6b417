// Fused sums of matrix hardware, 32 columns at once: dot.h's fused_step without branches.
//
// What differs from the plain code, which remains the definition:
//   1. Operands are numbers, and their exponents are kept beside them, so that nothing is taken apart twice.
//   2. Converting a product, scaled to units of the last place kept, to an integer cuts it off: that is the rule's
//      truncation of magnitudes. The product of two operands of at most five exponent bits is exact in float, any in
//      double; where scaling loses a bit, all of the product lies below the last place.
//   3. Operands are finite: accumulate.cpp sees to the others. A sum so far may be infinite or NaN, and stays so.
#pragma once

#include <ampscope/formats/accumulator.h>
#include <ampscope/formats/detail/instruction_set.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <type_traits>

namespace amp::cpu {

struct FusedConstants {
    int products = 0, group = 0; ///< of a step; of those whose sum fits in 32 bits
    int fraction_bits = 0;
    std::int16_t zero_exponent = 0;
    int least_exponent = 0; ///< of the register that holds the sum
    bool fp16 = false;
    std::uint32_t kept = 0; ///< bits of an FP32 result
};

constexpr FusedConstants fused_constants(const Accumulator& acc) {
    return {.products = acc.products,
            .group = 1 << (29 - acc.fraction_bits),
            .fraction_bits = acc.fraction_bits,
            .zero_exponent = static_cast<std::int16_t>(acc.zero_exponent),
            .least_exponent = acc.result().min_exponent(),
            .fp16 = acc.sum.exponent_bits != 8,
            .kept = ~std::uint32_t{0} << (23 - acc.sum.fraction_bits)};
}

/// c[j] = the fused sum of c[j] and the products of a[l] and b[l * columns + j], in steps of k.products, l < steps *
/// products. `Real` holds products: float for formats of at most five exponent bits, else double.
template <class Real>
struct FusedKernel {
    static constexpr int columns = 32;

    AMPSCOPE_KERNEL void run(const FusedConstants* constants, const Real* __restrict a,
                             const std::int16_t* __restrict a_exponents, const Real* __restrict b,
                             const std::int16_t* __restrict b_exponents, std::int64_t steps, float* __restrict c) {
        const FusedConstants k = *constants;
        for (std::int64_t step = 0; step < steps; ++step) {
            // 1. The largest exponent of the products.
            std::int16_t largest[columns];
            for (int j = 0; j < columns; ++j) largest[j] = k.zero_exponent;
            for (int l = 0; l < k.products; ++l, b_exponents += columns)
                for (int j = 0; j < columns; ++j) {
                    const auto e = static_cast<std::int16_t>(a_exponents[l] + b_exponents[j]);
                    largest[j] = largest[j] > e ? largest[j] : e;
                }
            a_exponents += k.products;
            // 2. That of all terms, and the sum so far in units of the last place kept.
            Real scale[columns];
            double total[columns], unit[columns];
            for (int j = 0; j < columns; ++j) begin(k, c[j], largest[j], scale[j], total[j], unit[j]);
            // 3. Products, cut off, added exactly.
            for (int first = 0; first < k.products; first += k.group) {
                std::int32_t sum[columns]{};
                const int end = std::min(first + k.group, k.products);
                for (int l = first; l < end; ++l, ++a, b += columns)
                    for (int j = 0; j < columns; ++j) sum[j] += static_cast<std::int32_t>(*a * (b[j] * scale[j]));
                for (int j = 0; j < columns; ++j) total[j] += sum[j];
            }
            // 4. Normalised and rounded once.
            for (int j = 0; j < columns; ++j) {
                const double value = total[j] * unit[j];
                const float rounded = k.fp16 ? round_fp16(value) : truncate(value, k.kept);
                const std::uint32_t special = std::bit_cast<std::uint32_t>(c[j]) & 0x7f800000;
                c[j] = special == 0x7f800000 ? c[j] : rounded;
            }
        }
    }

  private:
    AMPSCOPE_KERNEL void begin(const FusedConstants& k, float c, std::int16_t largest, Real& scale, double& total,
                               double& unit) {
        const auto bits = std::bit_cast<std::uint32_t>(c) & 0x7fffffff;
        const int normal = std::max(static_cast<int>(bits >> 23) - 127, k.least_exponent);
        // Without any exponent the sum is zero, whatever the unit. Where all products are zero they may have any scale
        // that leaves the operands finite.
        constexpr int least = std::is_same_v<Real, float> ? -60 : -800;
        const int e = std::max(bits == 0 ? -800 : normal, static_cast<int>(largest));
        scale = power<Real>(k.fraction_bits - std::max(e, least));
        unit = power<double>(e - k.fraction_bits);
        const double units = static_cast<double>(bits >= 0x7f800000 ? 0 : c) * power<double>(k.fraction_bits - e);
        total = static_cast<std::int32_t>(units);
    }

    /// 2^e, for the exponents of normal numbers.
    template <class T>
    AMPSCOPE_KERNEL T power(int e) {
        if constexpr (std::is_same_v<T, float>) return std::bit_cast<float>(static_cast<std::uint32_t>(e + 127) << 23);
        else return std::bit_cast<double>(static_cast<std::uint64_t>(e + 1023) << 52);
    }

    /// To an FP32 register: truncated, but infinite from 2^128 on.
    AMPSCOPE_KERNEL float truncate(double value, std::uint32_t kept) {
        const auto nearest = static_cast<float>(value);
        const double magnitude = __builtin_fabs(value);
        const bool raised = static_cast<double>(__builtin_fabsf(nearest)) > magnitude && magnitude < 0x1p128;
        return std::bit_cast<float>((std::bit_cast<std::uint32_t>(nearest) - std::uint32_t{raised}) & kept);
    }

    /// To nearest-even in FP16, by adding the power of two whose last place is that of the result.
    AMPSCOPE_KERNEL float round_fp16(double value) {
        const double magnitude = __builtin_fabs(value);
        const std::uint64_t binade = std::bit_cast<std::uint64_t>(magnitude) & 0x7ff0'0000'0000'0000;
        const std::uint64_t normal = std::bit_cast<std::uint64_t>(0x1p-14);
        const auto adder = std::bit_cast<double>((binade > normal ? binade : normal) + (std::uint64_t{42} << 52));
        const double rounded = (magnitude + adder) - adder;
        const float result = rounded >= 65536 ? __builtin_inff() : static_cast<float>(rounded);
        return value < 0 ? -result : result;
    }
};

} // namespace amp::cpu

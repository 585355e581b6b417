// Fused sums of matrix hardware for many columns at once: fused_step of dot.h without branches.
//
// What differs from the plain code, which remains the definition:
//
// Operands are floating-point numbers with their exponents kept beside them, so that none is taken apart twice.
//
// A product, scaled to units of the last place kept, is cut off by converting it to an integer, which truncates
// magnitudes as the rule asks. Products of two 11-bit significands are exact in float; where scaling loses a bit, the
// whole product lies below the last place.
//
// Operands are finite: accumulate.cpp handles the others. The sum so far may be infinite or NaN, and stays so.
//
// There are two ranges of exponents. If operands are zero or in [2^-30, 2^31) ("near"), all is done in float and 32-bit
// integers. A sum so far with a smaller exponent than any near product meets zero products only, and is kept as it is.
// Other operands are handled in double.
#pragma once

#include <ampscope/formats/accumulator.h>
#include <ampscope/formats/instruction_set.h>
#include <ampscope/formats/scaled_dot.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace amp::cpu {

/// Columns of which kernels with vectors of so many bytes add products at once: four vectors of sums. With fewer the
/// end of one step, whose result the next one needs, would take longer than another's products.
template <std::size_t bytes>
inline constexpr int fused_columns = bytes;

/// Near operands are zero or have exponents from -near_exponent to near_exponent.
inline constexpr int near_exponent = 30;

/// The exponent kept for zero operands: a product with one lies below all others. Exponents are kept in 8 bits if their
/// sums fit, which those of formats with at most 5 exponent bits do.
template <class Exponent>
inline constexpr Exponent exponent_of_zero = sizeof(Exponent) == 1 ? -50 : -8192;

/// Exponents lie as they are added: of each column, as many as fit in 32 bits, one after the other along k.
template <class Exponent>
inline constexpr int exponents_together = 4 / sizeof(Exponent);

struct FusedConstants {
    int products = 0, group = 0; ///< products of a step; products whose sum fits in 32 bits
    bool one_sum = false;        ///< the sum of a whole step fits in 32 bits
    int fraction_bits = 0;
    int zero_exponent = 0;
    int least_exponent = 0; ///< least exponent of the register that holds the sum
    bool fp16 = false;
    int scale_group = 0;    ///< products that share a pair of scales
    int group_point = 0;    ///< binary places of a group's exact sum with its scales
    std::uint32_t kept = 0; ///< mask of the bits kept of an FP32 result
};

/// A scale, or the product of two: significand * 2^(exponent - point).
struct ScaleTerm {
    static constexpr int point = 3; ///< the binary places of one scale
    std::int16_t exponent = 0, significand = 1 << point;
};

/// A scale of that format; as zero an exponent so low that a zero scale with any other is smaller than all products.
inline ScaleTerm scale_term(const FormatSpec& format, float scale) {
    if (scale == 0 || scale != scale) return {.exponent = -300, .significand = 0};
    const detail::TermScale t = detail::term_scale(format, scale, 1);
    const auto significand = static_cast<int>(t.significand << (2 * ScaleTerm::point - t.point)) >> ScaleTerm::point;
    return {.exponent = static_cast<std::int16_t>(t.exponent), .significand = static_cast<std::int16_t>(significand)};
}

/// The constants for operands of those formats.
constexpr FusedConstants fused_constants(const Accumulator& acc, const FormatSpec& a, const FormatSpec& b) {
    // Significands are at most 2 - 2^-bits; the sum so far is below 2^(fraction_bits + 1) units.
    const FormatSpec a_read = acc.reads(a), b_read = acc.reads(b);
    const auto significand = [](const FormatSpec& f, const FormatSpec& read) {
        return 2 - 1 / static_cast<double>(std::int64_t{1} << std::min(f.fraction_bits, read.fraction_bits));
    };
    const double unit = static_cast<double>(std::int64_t{1} << acc.fraction_bits),
                 product = significand(a, a_read) * significand(b, b_read) * unit;
    return {.products = acc.products,
            .group = std::min(acc.products, static_cast<int>(0x1p31 / product)),
            .one_sum = acc.products * product + 2 * unit < 0x1p31,
            .fraction_bits = acc.fraction_bits,
            .zero_exponent = acc.zero_exponent,
            .least_exponent = acc.result().min_exponent(),
            .fp16 = acc.sum.exponent_bits != 8,
            .scale_group = acc.scales.group,
            .group_point = 2 * ScaleTerm::point - a_read.min_subnormal_exponent() - b_read.min_subnormal_exponent(),
            .kept = ~std::uint32_t{0} << (23 - acc.sum.fraction_bits)};
}

/// 2^e for exponents of normal numbers.
template <class T>
[[gnu::always_inline]] inline T power(int e) {
    if constexpr (std::is_same_v<T, float>) return std::bit_cast<float>(static_cast<std::uint32_t>(e + 127) << 23);
    else return std::bit_cast<double>(static_cast<std::uint64_t>(e + 1023) << 52);
}

/// x truncated to a float with the bits of `kept`, but infinite from 2^128 on. `nearest` is the float nearest to x, and
/// `beyond` tells whether |nearest| > |x|.
[[gnu::always_inline]] inline float truncated(float nearest, bool beyond, std::uint32_t kept) {
    return std::bit_cast<float>((std::bit_cast<std::uint32_t>(nearest) - std::uint32_t{beyond}) & kept);
}

/// The same of a double.
[[gnu::always_inline]] inline float cut_off(double value, std::uint32_t kept) {
    const double magnitude = __builtin_fabs(value);
    const auto nearest = static_cast<float>(value);
    return truncated(nearest, static_cast<double>(__builtin_fabsf(nearest)) > magnitude && magnitude < 0x1p128, kept);
}

/// Rounds to nearest-even in FP16, by adding the power of two whose last place is that of the result.
[[gnu::always_inline]] inline float round_fp16(double value) {
    const double magnitude = __builtin_fabs(value);
    const std::uint64_t binade = std::bit_cast<std::uint64_t>(magnitude) & 0x7ff0'0000'0000'0000;
    const std::uint64_t normal = std::bit_cast<std::uint64_t>(0x1p-14);
    const auto adder = std::bit_cast<double>((binade > normal ? binade : normal) + (std::uint64_t{42} << 52));
    const double rounded = (magnitude + adder) - adder;
    const float result = rounded >= 65536 ? __builtin_inff() : static_cast<float>(rounded);
    return value < 0 ? -result : result;
}

/// c[j] = the fused sum of c[j] and the products of a[l] and b[l * columns + j] for l < steps * k.products, in steps of
/// k.products. `Real` holds a product: float for near operands, else double. There may be scales if operands are not
/// near: the products of step s are multiplied by those of a_scales[s] and b_scales[s * columns + j], powers of two.
/// `bytes` is the length of a vector: g++ makes much of longer ones in memory.
template <class Real, class Exponent, std::size_t bytes>
struct FusedKernel {
    static constexpr int columns = fused_columns<bytes>;

    AMPSCOPE_KERNEL void run(const FusedConstants* constants, const Real* __restrict a,
                             const Exponent* __restrict a_exponents, const Real* __restrict b,
                             const Exponent* __restrict b_exponents, const ScaleTerm* __restrict a_scales,
                             const ScaleTerm* __restrict b_scales, std::int64_t steps, float* __restrict c) {
        const FusedConstants k = *constants;
        for (std::int64_t step = 0; step < steps; ++step) {
            // 1. The largest exponent of the products.
            std::int32_t largest[columns];
            for (int j = 0; j < columns; j += words)
                largest_exponents(k.products, a_exponents, b_exponents + j * together, largest + j);
            a_exponents += k.products;
            b_exponents += k.products * columns;
            // 2. The largest exponent of all terms, and the sum so far in units of the last place kept.
            int exponent[columns], shift[columns]{};
            Real scale[columns];
            std::int32_t addend[columns];
            if constexpr (std::is_same_v<Real, double>)
                if (a_scales != nullptr)
                    for (int j = 0; j < columns; ++j)
                        shift[j] = a_scales[step].exponent + b_scales[step * columns + j].exponent;
            for (int j = 0; j < columns; ++j) {
                exponent[j] = exponent_of_all(k, c[j], std::max(largest[j] + shift[j], k.zero_exponent));
                const int unit = k.fraction_bits - std::max(exponent[j], least);
                const float finite = __builtin_fabsf(c[j]) < __builtin_inff() ? c[j] : 0;
                addend[j] = static_cast<std::int32_t>(finite * power<Real>(unit));
                scale[j] = power<Real>(unit + shift[j]);
            }
            // 3. Products are cut off and added exactly. 4. The sum is normalised and rounded once.
            bool in_words = k.one_sum;
            if (k.one_sum) {
                add(k.products, a, b, scale, addend);
            } else if (k.group == k.products) { // then the sum with the addend nearly always fits, too
                std::int32_t sum[columns]{};
                std::uint32_t magnitudes = 0;
                add(k.products, a, b, scale, sum);
                for (int j = 0; j < columns; ++j) magnitudes |= static_cast<std::uint32_t>(sum[j] ^ (sum[j] >> 31));
                in_words = magnitudes < 1U << 30;
                for (int j = 0; j < columns && in_words; ++j) addend[j] += sum[j];
            }
            if (in_words) {
                finish(k, addend, exponent, c);
            } else {
                double total[columns];
                for (int j = 0; j < columns; ++j) total[j] = addend[j];
                for (int first = 0; first < k.products; first += k.group) {
                    std::int32_t sum[columns]{};
                    add(std::min(k.group, k.products - first), a + first, b + first * columns, scale, sum);
                    for (int j = 0; j < columns; ++j) total[j] += sum[j];
                }
                finish(k, total, exponent, c);
            }
            a += k.products;
            b += k.products * columns;
        }
    }

  private:
    static constexpr int together = exponents_together<Exponent>, words = bytes / sizeof(std::int32_t);
    using Words [[gnu::vector_size(bytes)]] = std::int32_t;
    using Exponents [[gnu::vector_size(bytes)]] = Exponent;

    /// to[j] = the largest a[l] + b(l, j) of the columns of a vector. Those of `together` products are added at once.
    AMPSCOPE_KERNEL void largest_exponents(int products, const Exponent* a, const Exponent* b, std::int32_t* to) {
        Exponents largest = Exponents{} + exponent_of_zero<Exponent>;
        for (int l = 0; l < products; l += together, b += columns * together) {
            std::int32_t word = 0;
            Exponents of_b;
            std::memcpy(&word, a + l, sizeof word);
            std::memcpy(&of_b, b, sizeof of_b);
            const Exponents sum = reinterpret_cast<Exponents>(Words{} + word) + of_b;
            largest = sum > largest ? sum : largest;
        }
        // Of the exponents in a word, the largest.
        for (int bits = 16; bits >= 32 / together; bits /= 2) {
            const auto other = reinterpret_cast<Exponents>(reinterpret_cast<Words>(largest) >> bits);
            largest = other > largest ? other : largest;
        }
        constexpr int beyond = 32 - 32 / together;
        Words result = reinterpret_cast<Words>(largest) << beyond >> beyond;
        if constexpr (sizeof(Exponent) == 1)
            result = result <= exponent_of_zero<Exponent> + 16 ? Words{} + exponent_of_zero<std::int16_t> : result;
        std::memcpy(to, &result, sizeof result);
    }

    /// A lower limit for exponents. If all products are zero, any scale will do that leaves the operands finite.
    static constexpr int least = std::is_same_v<Real, float> ? -2 * near_exponent : -800;

    AMPSCOPE_KERNEL int exponent_of_all(const FusedConstants& k, float c, int largest) {
        const auto bits = std::bit_cast<std::uint32_t>(c) & 0x7fffffff;
        const int normal = std::max(static_cast<int>(bits >> 23) - 127, k.least_exponent);
        return std::max(bits == 0 ? -800 : normal, largest); // without any non-zero term the sum is zero in any unit
    }

    AMPSCOPE_KERNEL void add(int products, const Real* a, const Real* b, const Real* scale, std::int32_t* sum) {
        for (int l = 0; l < products; ++l)
            for (int j = 0; j < columns; ++j)
                sum[j] += static_cast<std::int32_t>(a[l] * (b[l * columns + j] * scale[j]));
    }

    /// Converts sums from units of 2^(exponent - fraction_bits) to results; + 0 makes +0 of -0.
    template <class Total>
    AMPSCOPE_KERNEL void finish(const FusedConstants& k, const Total* total, const int* exponent, float* c) {
        if (k.fp16 || std::is_same_v<Real, double>) {
            for (int j = 0; j < columns; ++j) {
                const double value = total[j] * power<double>(exponent[j] - k.fraction_bits);
                const float rounded = k.fp16 ? round_fp16(value) : cut_off(value, k.kept);
                c[j] = __builtin_fabsf(c[j]) < __builtin_inff() ? rounded + 0.0F : c[j];
            }
            return;
        }
        for (int j = 0; j < columns; ++j) { // truncated in units: subnormal only if c is the only term
            const auto nearest = static_cast<float>(total[j]);
            const Total back = static_cast<Total>(nearest), x = total[j];
            const bool beyond = (back < 0 ? -back : back) > (x < 0 ? -x : x);
            const float unit = power<float>(std::max(exponent[j], least) - k.fraction_bits);
            const float value = truncated(nearest, beyond, k.kept) * unit;
            const float alone = truncated(c[j], false, k.kept);
            const float result = exponent[j] < least ? alone : value;
            c[j] = __builtin_fabsf(c[j]) < __builtin_inff() ? result + 0.0F : c[j];
        }
    }
};

} // namespace amp::cpu

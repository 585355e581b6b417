// Sums of integers in INT32, as tensor cores add products of INT8 and INT4.
#pragma once

#include <ampscope/formats/codec.h>
#include <ampscope/formats/fused_dot.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace amp {

inline constexpr std::int64_t least_int32 = -(std::int64_t{1} << 31), largest_int32 = (std::int64_t{1} << 31) - 1;

/// The integer that hardware would be given for x. Operands are integers; so that any float has a result, others lose
/// their fraction, magnitudes end at `most`, and NaN is 0.
constexpr std::int64_t integer_of(float x, std::int64_t most) {
    if (x >= static_cast<float>(most)) return most;
    if (x <= -static_cast<float>(most)) return -most;
    return x == x ? static_cast<std::int64_t>(x) : 0;
}

/// The same for an operand of a product.
constexpr std::int32_t integer_operand(float x) { return static_cast<std::int32_t>(integer_of(x, 1 << 15)); }

/// What an INT32 register holds of an exact sum.
constexpr std::int32_t in_int32(Accumulation method, std::int64_t sum) {
    if (method == Accumulation::clamped) // copies: see bits.h
        return static_cast<std::int32_t>(std::clamp(sum, std::int64_t{least_int32}, std::int64_t{largest_int32}));
    return static_cast<std::int32_t>(static_cast<std::uint32_t>(static_cast<std::uint64_t>(sum)));
}

/// An INT32 as the FP32 number nearest to it (cvt.rn.f32.s32).
constexpr float float_of(std::int32_t sum) { return quantize(fp32_format(), static_cast<double>(sum)); }

namespace detail {

constexpr std::int32_t int32_dot(const Accumulator& acc, const Numbers& a, const Numbers& b, std::int32_t c) {
    const auto step = static_cast<std::size_t>(acc.products);
    for (std::size_t begin = 0; begin < a.size(); begin += step) {
        std::int64_t sum = c;
        for (std::size_t i = begin; i < a.size() && i < begin + step; ++i)
            sum += std::int64_t{integer_operand(a[i])} * integer_operand(b[i]);
        c = in_int32(acc.method, sum);
    }
    return c;
}

constexpr float integer_dot(const Accumulator& acc, const Numbers& a, const Numbers& b, float c) {
    const std::int64_t addend = c <= -0x1p31F ? least_int32 : integer_of(c, largest_int32);
    return float_of(int32_dot(acc, a, b, static_cast<std::int32_t>(addend)));
}

} // namespace detail

/// a . b + c in the INT32 register of a row that adds integers.
constexpr std::int32_t int32_dot(const Accumulator& acc, std::span<const float> a, std::span<const float> b,
                                 std::int32_t c = 0) {
    return detail::int32_dot(acc, detail::Numbers(a), detail::Numbers(b), c);
}

} // namespace amp

// The scale of a block, with a zero point or without, and what is stored for a number with it.
#pragma once

#include <ampscope/formats/arithmetic.h>
#include <ampscope/formats/codec.h>

#include <bit>
#include <cstdint>

namespace amp {

/// A scale: q = round(x * encode), or round(x / divisor) if that is not 0; then x ~ q * decode. Numbers saturate at the
/// element's largest, or at `low` and `high` where these are given: with a zero point z, q stands for the stored code
/// less z, so `low` is the least code less z.
struct BlockScale {
    float encode = 1, decode = 1, divisor = 0, low = 0, high = 0;

    [[nodiscard]] constexpr bool has_zero_point() const { return low != high; }
    /// x as it is before it is rounded.
    [[nodiscard]] constexpr float scaled(float x) const { return divisor != 0 ? x / divisor : x * encode; }
};

/// The least and the largest number of a block, and 0. NaN does not count.
struct BlockRange {
    float least = 0, largest = 0;

    constexpr void add(float x) {
        least = x < least ? x : least;
        largest = x > largest ? x : largest;
    }
};

namespace detail {

// Not inlined: the rules of scales have dozens of these calls, each a thousand instructions on a device.
[[gnu::noinline]] constexpr float fp32_div(float a, float b) {
    Arithmetic math{fp32_format()};
    return std::bit_cast<float>(math.div(std::bit_cast<std::uint32_t>(a), std::bit_cast<std::uint32_t>(b)));
}
[[gnu::noinline]] constexpr float fp32_mul(float a, float b) {
    Arithmetic math{fp32_format()};
    return std::bit_cast<float>(math.mul(std::bit_cast<std::uint32_t>(a), std::bit_cast<std::uint32_t>(b)));
}

[[gnu::noinline]] constexpr float fp32_sub(float a, float b) {
    Arithmetic math{fp32_format()};
    return std::bit_cast<float>(math.sub(std::bit_cast<std::uint32_t>(a), std::bit_cast<std::uint32_t>(b)));
}

/// Integers beyond any code and zero point, which a number is rounded to before it is clipped.
constexpr FormatSpec wide_integers() {
    constexpr FormatSpec int18 = integer_format("int18", 18, 0, Negatives::twos_complement);
    return int18;
}

} // namespace detail

/// The scale and zero point of a block by ONNX's DynamicQuantizeLinear (opset 11), for elements of any number of bits:
/// s = (largest - least) / (2^bits - 1), z = round(-least / s), codes = round(x / s) + z from 0 to 2^bits - 1, all in
/// FP32 and to nearest-even. ONNX's UINT8 is read here as INT8: both its codes and its zero points are 128 less, and
/// what is stored, the code less z, is the same. As in ONNX Runtime s is 1 where all numbers are zero; here also where
/// the quotient is zero or infinite.
constexpr BlockScale affine_scale(const FormatSpec& element, const BlockRange& range) {
    const auto steps = static_cast<float>(element.code_mask());
    const float quotient = detail::fp32_div(detail::fp32_sub(range.largest, range.least), steps),
                s = quotient == 0 || !is_finite(quotient) ? 1 : quotient;
    const float rounded = quantize(detail::wide_integers(), detail::fp32_div(detail::fp32_sub(0, range.least), s),
                                   {.overflow = Overflow::saturate_all});
    const float z = rounded < steps ? rounded : steps;
    return {.encode = detail::fp32_div(1, s), .decode = s, .divisor = s, .low = 0 - z, .high = steps - z};
}

/// Whether numbers of the format can have zero points: all codes are integers, the least one included.
constexpr bool takes_zero_points(const FormatSpec& element) {
    return element.is_integer() && element.negatives == Negatives::twos_complement &&
           element.min_subnormal_exponent() == 0;
}

/// What is stored for a number that was scaled: rounded once to the element format, larger magnitudes saturate. With a
/// zero point, rounded to an integer, then clipped; NaN becomes the largest, as in any integer format.
constexpr float round_scaled(const FormatSpec& element, float scaled, const BlockScale& scale, Policy policy,
                             std::uint32_t random = 0) {
    policy.overflow = Overflow::saturate_all;
    if (!scale.has_zero_point()) return quantize(element, scaled, policy, random);
    const float q = quantize(detail::wide_integers(), scaled, policy, random);
    return q < scale.low ? scale.low : q > scale.high ? scale.high : q;
}

/// Whether a number that was scaled is beyond what can be stored, once it is rounded to nearest-even.
constexpr bool is_clipped(const FormatSpec& element, float scaled, const BlockScale& scale) {
    if (scale.has_zero_point()) {
        const float q = quantize(detail::wide_integers(), scaled, {.overflow = Overflow::saturate_all});
        return q < scale.low || q > scale.high;
    }
    Flags flags;
    encode(element, scaled, {}, 0, flags);
    return flags.test(Flags::overflow);
}

/// The number stored for x: scaled in FP32, then round_scaled().
constexpr float quantize_scaled(const FormatSpec& element, float x, const BlockScale& scale,
                                Rounding rounding = Rounding::nearest_even, std::uint32_t random = 0) {
    const float scaled = scale.divisor != 0 ? detail::fp32_div(x, scale.divisor) : detail::fp32_mul(x, scale.encode);
    return round_scaled(element, scaled, scale, {.rounding = rounding}, random);
}

} // namespace amp

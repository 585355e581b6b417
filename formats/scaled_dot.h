// Dot products of scaled operands: scales within the sums of matrix hardware, or behind the sum of each block.
#pragma once

#include <ampscope/formats/block.h>
#include <ampscope/formats/dot.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace amp {

/// One operand of a scaled dot product: numbers, and one scale for every `block` of them.
struct ScaledNumbers {
    std::span<const float> values, scales;
};

/// Whether the accumulator itself applies scales of that format, one for `block` numbers each, as Blackwell's mxf8f6f4
/// and mxf4nvf4 do.
constexpr bool applies_scales(const Accumulator& acc, const FormatSpec& scale, std::int64_t block) {
    constexpr FormatSpec e8m0 = format("e8m0"), e4m3 = format("e4m3"); // a device cannot look up names
    const ProductScales& s = acc.scales;
    return s.group != 0 && block % s.group == 0 && block <= ProductScales::largest_block &&
           (scale == e8m0 || (s.e4m3 && scale == e4m3));
}

/// The addend of a sum that has none: what is added to -0 stays as it is.
inline constexpr float no_addend = -0.0F;

/// c plus the sums of blocks, each times its two scales, in an FP32 total: sum(x, y) is the dot product of a block's
/// numbers. Without scales, the sum of all as one block, without c.
template <class Sum>
constexpr float scaled_total(const ScaledNumbers& a, const ScaledNumbers& b, std::size_t block, const Sum& sum,
                             float c = no_addend) {
    Arithmetic math{fp32_format()};
    const std::size_t k = a.values.size();
    auto total = std::bit_cast<std::uint32_t>(k == 0 && c == 0 ? 0.0F : c);
    for (std::size_t i = 0; i * block < k; ++i) {
        const std::size_t begin = i * block, n = block < k - begin ? block : k - begin;
        const float of_block = sum(a.values.subspan(begin, n), b.values.subspan(begin, n));
        if (a.scales.empty()) return of_block;
        const auto part = std::bit_cast<std::uint32_t>(of_block),
                   scale = std::bit_cast<std::uint32_t>(detail::fp32_mul(a.scales[i], b.scales[i]));
        total = math.fma(part, scale, total);
    }
    return std::bit_cast<float>(total);
}

namespace detail {

/// What an instruction reads of two scales, which are not NaN: E4M3 numbers, or powers of two. Signs are ignored.
constexpr TermScale term_scale(const FormatSpec& scale, float a, float b) {
    if (scale.is_scale()) return {.exponent = binade_of(a).exponent + binade_of(b).exponent};
    const Term x = term(scale, a), y = term(scale, b);
    return {.exponent = x.exponent + y.exponent,
            .point = x.point + y.point,
            .significand = x.kind == Kind::zero || y.kind == Kind::zero ? 0 : x.significand * y.significand};
}

} // namespace detail

/// scaled_dot() for a device, which cannot look up names: fa and fb are what acc.reads() gives; sum(x, y) is the dot
/// product without scales.
template <class Sum>
constexpr float scaled_dot_as_read(const Accumulator& acc, const FormatSpec& fa, const FormatSpec& fb,
                                   const ScaledNumbers& a, const ScaledNumbers& b, std::size_t block,
                                   const FormatSpec& scale, const Sum& sum, float c = no_addend) {
    if (a.scales.empty() || !applies_scales(acc, scale, static_cast<std::int64_t>(block)))
        return scaled_total(a, b, block, sum, c);
    for (std::size_t i = 0; i * block < a.values.size(); ++i)
        if (a.scales[i] != a.scales[i] || b.scales[i] != b.scales[i]) return detail::hardware_nan();
    return detail::whole_dot(acc, fa, fb, a.values, b.values, c == 0 ? 0 : c, [&](std::size_t k) {
        return detail::term_scale(scale, a.scales[k / block], b.scales[k / block]);
    });
}

/// The dot product of two scaled operands, x ~ q * scale. `scale` is the format of the scales. If the accumulator
/// applies such scales (applies_scales), they are part of its sums; a NaN scale gives NaN. Otherwise every block is
/// summed by itself, and its sum times the product of its two scales is added to a total by an FP32 fused multiply-add,
/// as DeepGEMM promotes it. cuBLAS, as TE's reference of it computes, multiplies the sum by one scale and adds its
/// product with the other: the same bits where scales are powers of two, an FP32 rounding elsewhere where they are not.
/// Of split-K this total knows nothing: it splits the sum within a block. It begins with c, of acc.total() where
/// the accumulator applies the scales, else of FP32.
constexpr float scaled_dot(const Accumulator& acc, const FormatSpec& a_format, const FormatSpec& b_format,
                           const ScaledNumbers& a, const ScaledNumbers& b, std::size_t block, const FormatSpec& scale,
                           float c = no_addend) {
    const FormatSpec fa = acc.reads(a_format), fb = acc.reads(b_format);
    return scaled_dot_as_read(
        acc, fa, fb, a, b, block, scale,
        [&](std::span<const float> x, std::span<const float> y) { return dot_as_read(acc, fa, fb, x, y, 0); }, c);
}

} // namespace amp

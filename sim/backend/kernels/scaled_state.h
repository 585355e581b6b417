// What is stored of an optimizer's state that is kept under scales, formats/scaled_format.h.
#pragma once

#include <ampscope/formats/block.h>
#include <ampscope/formats/codec.h>
#include <ampscope/formats/scaled_format.h>
#include <ampscope/sim/backend/kernels/kernel.h>

#include <cstddef>

namespace amp::kernels {

/// The value that MS-AMP stores for x, see keep_scaled().
AMPSCOPE_INLINE float scaled_value(const FormatSpec& f, float x, const BlockScale& scale) {
    const Overflow overflow = f.bits() == 8 ? Overflow::saturate_all : Overflow::infinity;
    return named(quantize(f, x * scale.encode, {.overflow = overflow}) * scale.decode);
}

/// The number of an ascending table that x is rounded to, as torchao searches it: the nearest, of two equally near ones
/// the upper one, by differences that are FP32. A NaN becomes the first number. The length is a power of two.
AMPSCOPE_INLINE float nearest_number(const float* numbers, int length, float x) {
    int below = 0;
    for (int half = length / 2; half > 0; half /= 2) below += x >= numbers[below + half] ? half : 0;
    const float down = numbers[below], up = numbers[below + (below + 1 < length ? 1 : 0)];
    return x - down >= (up - down) * 0.5F ? up : down;
}

/// The number of a table of 256 that bitsandbytes' quantize_cpu_impl() rounds x to: [-1, 1] is divided into 65,536 bins
/// around -1 + 2 i / 65535, and a bin has the number that is nearest to its centre, the lower one of two. So no number
/// is 0 (that of 0 is 1.6e-5, or 2.1e-5 where there are negative ones), and none is nearer to it than these.
AMPSCOPE_INLINE float number_of_bin(const float* numbers, float x) {
    const float clamped = x < -1 ? -1.0F : x > 1 ? 1.0F : x;
    const auto bin = static_cast<float>(static_cast<int>((clamped + 1) * 0.5F * 65535 + 0.5F));
    const float centre = -1 + 2 * bin / 65535;
    int code = 0;
    for (int half = 128; half > 0; half /= 2)
        code += 0.5F * (numbers[code + half - 1] + numbers[code + half]) < centre ? half : 0;
    return numbers[code];
}

/// Rounds the n numbers of a block as bitsandbytes does on the processor: amax is the largest magnitude, without NaNs,
/// and x times 1 / amax is looked up; the numbers of a block of zeros are the first of the table times 0. A NaN, which
/// it converts to an integer, becomes the first number, too: C++ does not define that, its wheel for x86 does.
AMPSCOPE_DEVICE inline void keep_bnb_block(const float* numbers, float* x, std::size_t n) {
    float amax = 0;
    for (std::size_t i = 0; i < n; ++i) {
        const float magnitude = x[i] < 0 ? -x[i] : x[i];
        if (magnitude > amax) amax = magnitude;
    }
    const float inverse = 1 / amax;
    for (std::size_t i = 0; i < n; ++i) {
        const float scaled = x[i] * inverse;
        const float number = amax == 0 || scaled != scaled ? numbers[0] : number_of_bin(numbers, scaled);
        x[i] = named(number * amax);
    }
}

/// Rounds the n numbers of a block to the format and back, as torchao's OptimState8bit, OptimState4bit and
/// OptimStateFp8 do; every operation rounds to FP32:
/// 1. amax is the largest magnitude, or NaN if one is, and at least 1e-12.
/// 2. The scale is amax for a table, amax / the largest number for a format.
/// 3. x / scale is rounded to a number of the table or, to nearest even, of the format; and that number times the scale
///    is what the next step reads.
/// `numbers`: the table of `length` numbers, if the format has one.
AMPSCOPE_DEVICE inline void keep_block(const ScaledFormat& f, const float* numbers, int length, float* x,
                                       std::size_t n) {
    if (f.map == CodeMap::bnb8) return keep_bnb_block(numbers, x, n);
    float amax = 1e-12F;
    for (std::size_t i = 0; i < n; ++i) {
        const float magnitude = x[i] < 0 ? -x[i] : x[i];
        if (magnitude > amax || magnitude != magnitude) amax = magnitude;
    }
    const float scale = length > 0 ? amax : amax / decode(f.element, f.element.max_code());
    for (std::size_t i = 0; i < n; ++i) {
        const float number =
            length > 0 ? nearest_number(numbers, length, x[i] / scale) : quantize(f.element, x[i] / scale);
        x[i] = named(number * scale);
    }
}

} // namespace amp::kernels

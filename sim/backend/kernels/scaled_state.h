// What is stored of an optimizer's state that is kept under scales, formats/scaled_format.h.
#pragma once

#include <ampscope/formats/block.h>
#include <ampscope/formats/codec.h>
#include <ampscope/formats/scaled_format.h>
#include <ampscope/sim/backend/kernels/kernel.h>

#include <cstddef>
#include <limits>

namespace amp::kernels {

/// MS-AMP's FP8 saturates.
constexpr Policy ms_amp_policy(const FormatSpec& f) {
    return {.overflow = f.bits() == 8 ? Overflow::saturate_all : Overflow::infinity};
}

/// The value that MS-AMP stores for x, see keep_scaled().
AMPSCOPE_INLINE float scaled_value(const FormatSpec& f, float x, const BlockScale& scale) {
    return named(quantize(f, x * scale.encode, ms_amp_policy(f)) * scale.decode);
}

/// The last of 2 * half codes that x reaches, if it reaches all before it; 0 if it reaches none. By calls and not by a
/// loop, within which g++ does not vectorise the loop over x.
template <int half, class Reaches>
AMPSCOPE_INLINE int last_reached(const Reaches& reaches, int code = 0) {
    const int next = code + (reaches(code + half) ? half : 0);
    if constexpr (half > 1) return last_reached<half / 2>(reaches, next);
    else return next;
}

/// The number of an ascending table that x is rounded to, as torchao searches it: the nearest, of two equally near ones
/// the upper one, by differences that are FP32. A NaN becomes the first number. `length`: a power of two.
template <int length>
AMPSCOPE_INLINE float nearest_number(const float* numbers, float x) {
    const int below = last_reached<length / 2>([=](int code) { return x >= numbers[code]; });
    const int above = below + 1 < length ? below + 1 : length - 1;
    const float down = numbers[below], up = numbers[above];
    return x - down >= (up - down) * 0.5F ? up : down;
}

/// The number of a table of 256 that bitsandbytes' quantize_cpu_impl() rounds x to: [-1, 1] is divided into 65,536 bins
/// around -1 + 2 i / 65535, and a bin has the number that is nearest to its centre, the lower one of two. So no number
/// is 0 (that of 0 is 1.6e-5, or 2.1e-5 where there are negative ones), and none is nearer to it than these. A NaN,
/// which it converts to an integer, becomes the first number: C++ does not define that, its wheel for x86 does.
AMPSCOPE_INLINE float number_of_bin(const float* numbers, float x) {
    const float clamped = x > 1 ? 1.0F : x >= -1 ? x : -1.0F;
    const auto bin = static_cast<float>(static_cast<int>((clamped + 1) * 0.5F * 65535 + 0.5F));
    const float centre = -1 + 2 * bin / 65535;
    return numbers[last_reached<128>([=](int code) { return 0.5F * (numbers[code - 1] + numbers[code]) < centre; })];
}

/// Whether a block's largest magnitude is NaN if one is, as torchao's; bitsandbytes leaves NaNs out.
constexpr bool keeps_nan(const ScaledFormat& f) { return f.map != CodeMap::bnb8; }

/// What a block of a format is divided by, and its numbers are multiplied by: torchao's amax, at least 1e-12, for a
/// table, amax / the largest number for a format.
AMPSCOPE_INLINE float scale_of_block(const ScaledFormat& f, float amax) {
    const float most = amax < 1e-12F ? 1e-12F : amax;
    return f.map == CodeMap::none ? most / decode(f.element, f.element.max_code()) : most;
}

/// Rounds the n numbers of a block with this largest magnitude to the numbers of a table and back. `numbers`: those
/// that code_numbers() gives.
/// - torchao's OptimState8bit and OptimState4bit: x / scale is rounded to a number of the table, and that number times
///   the scale is what the next step reads; every operation rounds to FP32.
/// - bitsandbytes on the processor: x times 1 / amax is looked up; the numbers of a block of zeros are the first of the
///   table times 0.
struct TableKernel {
    AMPSCOPE_KERNEL void run(const ScaledFormat* f, const float* numbers, float amax, float* x, std::size_t n) {
        const float scale = scale_of_block(*f, amax);
        if (f->map == CodeMap::dynamic8) round<256>(numbers, scale, x, n);
        else if (f->map == CodeMap::dynamic4) round<16>(numbers, scale, x, n);
        else round_to_bins(numbers, amax, x, n);
    }

  private:
    template <int length>
    AMPSCOPE_KERNEL void round(const float* numbers, float scale, float* x, std::size_t n) {
        AMPSCOPE_INDEPENDENT
        for (std::size_t i = 0; i < n; ++i) x[i] = named(nearest_number<length>(numbers, x[i] / scale) * scale);
    }
    AMPSCOPE_KERNEL void round_to_bins(const float* numbers, float amax, float* x, std::size_t n) {
        const float factor = amax == 0 ? std::numeric_limits<float>::quiet_NaN() : 1 / amax;
        AMPSCOPE_INDEPENDENT
        for (std::size_t i = 0; i < n; ++i) x[i] = named(number_of_bin(numbers, x[i] * factor) * amax);
    }
};

/// The number of a format that x in a block of this scale is rounded to, to nearest even, and back, as torchao's
/// OptimStateFp8 does.
AMPSCOPE_INLINE float value_in_block(const ScaledFormat& f, float scale, float x) {
    return named(quantize(f.element, x / scale) * scale);
}

} // namespace amp::kernels

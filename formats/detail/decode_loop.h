// The loop behind batch.h's decode: it moves the fields of a code to where FP32 has them.
#pragma once

#include <ampscope/formats/codec.h>
#include <ampscope/formats/detail/stream.h>
#include <ampscope/formats/instruction_set.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace amp::detail {

struct DecodingConstants {
    std::uint32_t magnitude_mask = 0, sign_mask = 0;
    std::uint32_t sign_shift = 0;      ///< from the sign bit to FP32's
    std::uint32_t drop = 0;            ///< number of fraction bits that FP32 has beyond the format's
    std::uint32_t rebias = 0;          ///< difference of the exponent biases, shifted to FP32's exponent field
    std::uint32_t min_normal = 0;      ///< magnitude codes below it are integers times `subnormal_scale`
    std::uint32_t subnormal_scale = 0; ///< the exponent of the subnormals' spacing, shifted to FP32's exponent field
    std::uint32_t infinity = 0;        ///< magnitude code of infinity; all ones if there is none
    std::uint32_t nan_from = 0;        ///< magnitude code of the first NaN; all ones if there is none
    std::uint32_t nan_code = 0;        ///< the only NaN where it has the code of -0; else all ones
    std::uint32_t nan_positive = 0, nan_negative = 0; ///< FP32 bits of the NaNs without and with sign bit
    std::uint32_t payload = 0;                        ///< mask of the FP32 fraction bits that a NaN keeps
};

inline DecodingConstants decoding_constants(const FormatSpec& f, NanRule rule, bool wide) {
    constexpr std::uint32_t absent = 0xffffffff;
    DecodingConstants k{.magnitude_mask = f.magnitude_mask(),
                        .sign_mask = f.sign_mask(),
                        .sign_shift = static_cast<std::uint32_t>(std::countl_zero(f.sign_mask())) % 32,
                        .drop = static_cast<std::uint32_t>(23 - f.fraction_bits),
                        .rebias = static_cast<std::uint32_t>(127 - f.bias()) << 23,
                        .min_normal = wide ? 0 : f.first_implicit_code(),
                        .subnormal_scale = static_cast<std::uint32_t>(f.min_subnormal_exponent()) << 23};
    k.infinity = f.has_infinity() ? f.infinity_code() : absent;
    k.nan_from = f.has_infinity() ? f.infinity_code() + 1 : f.nonfinite == NonFinite::nan_only ? f.nan_code() : absent;
    k.nan_code = f.nan_is_negative_zero() ? f.nan_code() : absent;
    if (f.has_nan()) {
        const auto value = [&](std::uint32_t code) { return std::bit_cast<std::uint32_t>(decode(f, code, rule)); };
        k.nan_positive = value(f.nan_code());
        k.nan_negative = value(f.nan_code() | f.sign_mask());
    }
    if (rule == NanRule::payload && f.has_nan_payload()) k.payload = 0x7fffff;
    return k;
}

/// What a loop can decode: those of fewer instructions are for the formats that training reads most.
enum class Decoding : std::uint8_t {
    prefix, ///< codes that are the upper bits of FP32's: BF16, TF32
    ieee,   ///< with fewer exponents, of which the largest is that of infinities and NaNs, which become canonical: FP16
    any
};

template <class Code, Decoding decoding>
struct DecodeKernel {
    AMPSCOPE_KERNEL void run(const Code* in, float* out, std::size_t n, bool streams,
                             const DecodingConstants* constants) {
        const DecodingConstants k = *constants;
        transform(
            in, out, n, streams, [&](Code stored, std::size_t) __attribute__((always_inline)) {
                const std::uint32_t code = stored & (k.magnitude_mask | k.sign_mask);
                const std::uint32_t magnitude = code & k.magnitude_mask, shifted = magnitude << k.drop;
                const bool negative = (code & k.sign_mask) != 0;
                if constexpr (decoding == Decoding::ieee) {
                    const std::uint32_t large = magnitude >= k.infinity ? k.rebias : 0;
                    std::uint32_t value =
                        magnitude < k.min_normal ? subnormal(magnitude, k) : shifted + k.rebias + large;
                    value |= (code << k.sign_shift) & 0x80000000;
                    return std::bit_cast<float>(magnitude > k.infinity ? k.nan_positive : value);
                }
                std::uint32_t value = code << k.drop;
                if constexpr (decoding == Decoding::any) {
                    value = magnitude < k.min_normal ? subnormal(magnitude, k) : shifted + k.rebias;
                    value = magnitude == k.infinity ? 0x7f800000 : value;
                    value |= negative ? 0x80000000 : 0;
                }
                const std::uint32_t nan = (negative ? k.nan_negative : k.nan_positive) | (shifted & k.payload);
                bool is_nan = magnitude >= k.nan_from;
                if constexpr (decoding == Decoding::any)
                    is_nan = static_cast<unsigned>(is_nan) | static_cast<unsigned>(code == k.nan_code);
                return std::bit_cast<float>(is_nan ? nan : value);
            });
    }

    /// A small integer, exact as a float whatever the rounding mode and the flush bits are, times their spacing.
    [[gnu::always_inline]] static std::uint32_t subnormal(std::uint32_t magnitude, const DecodingConstants& k) {
        const auto integer = std::bit_cast<std::uint32_t>(static_cast<float>(static_cast<std::int32_t>(magnitude)));
        return magnitude == 0 ? 0 : integer + k.subnormal_scale;
    }
};

/// How a code becomes one of FP16, which the processor decodes: its sign is shifted to the top, then the rest, behind
/// copies of the sign that a mask removes, to where FP16 has its first fraction bit. `scale` makes up for the bias.
struct HalfConstants {
    int left = 0, right = 0;
    std::uint16_t mask = 0;
    std::uint16_t nan_from = 0xffff; ///< magnitudes from here on, as codes of FP16, become `nan`
    std::uint32_t nan = 0;
    float scale = 1;
};

/// Where FP16 has the format's fraction bits and exponents, its infinities are FP16's, and it has one NaN at most.
inline std::optional<HalfConstants> half_constants(const FormatSpec& f, const DecodingConstants& k) {
    const bool has_exponents = f.exponent_bits < 5 || (f.exponent_bits == 5 && f.nonfinite == NonFinite::ieee);
    const bool has_infinities = !f.has_infinity() || f.exponent_bits == 5;
    const bool one_nan = k.nan_positive == k.nan_negative && k.payload == 0 && !f.nan_is_negative_zero();
    if (!f.is_signed || f.fraction_bits > 10 || !has_exponents || !has_infinities || !one_nan) return {};
    HalfConstants half{.left = 16 - f.bits(), .right = 5 - f.exponent_bits, .nan = k.nan_positive};
    const int place = half.left - half.right;
    half.mask = static_cast<std::uint16_t>(0x8000 | (k.magnitude_mask << place));
    if (f.has_nan()) half.nan_from = static_cast<std::uint16_t>(k.nan_from << place);
    const int spacing = f.min_subnormal_exponent() + 14 + f.fraction_bits; // to that of FP16, 2^-24 there
    half.scale = std::bit_cast<float>(static_cast<std::uint32_t>(127 + spacing) << 23);
    return half;
}

#if defined(__x86_64__)
/// The codes of 16 elements from `in` on, in 16 bits each.
[[gnu::target(AMPSCOPE_TARGET_AVX2)]] inline __m256i load_16_codes(const std::uint8_t* in) {
    return _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(in)));
}
[[gnu::target(AMPSCOPE_TARGET_AVX2)]] inline __m256i load_16_codes(const std::uint16_t* in) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in));
}

/// Decodes whole steps of 64 elements, and returns how many elements that were. No other instruction than the one for
/// FP16 makes floats of subnormal codes; it ignores the flush bits. NaNs are made quiet before, so that none raises an
/// exception.
template <class Code>
[[gnu::target(AMPSCOPE_TARGET_AVX2)]] inline std::size_t decode_half_avx2(const Code* in, float* out, std::size_t n,
                                                                          bool streams, const HalfConstants& k) {
    const __m256i mask = _mm256_set1_epi16(static_cast<short>(k.mask)), magnitude = _mm256_set1_epi16(0x7fff);
    const __m256i last_number = _mm256_set1_epi16(static_cast<short>(std::min(k.nan_from - 1, 0x7fff)));
    const __m256i quiet = _mm256_set1_epi16(0x200);
    const __m256 nan = _mm256_set1_ps(std::bit_cast<float>(k.nan)), scale = _mm256_set1_ps(k.scale);
    const __m128i left = _mm_cvtsi32_si128(k.left), right = _mm_cvtsi32_si128(k.right);
    std::size_t i = 0;
    for (; i + stream_block <= n; i += stream_block) {
        if (streams) prefetch_block(in + i);
#pragma GCC unroll 4
        for (std::size_t j = i; j < i + stream_block; j += 16) {
            __m256i half =
                _mm256_and_si256(_mm256_sra_epi16(_mm256_sll_epi16(load_16_codes(in + j), left), right), mask);
            const __m256i is_nan = _mm256_cmpgt_epi16(_mm256_and_si256(half, magnitude), last_number);
            half = _mm256_or_si256(half, _mm256_and_si256(is_nan, quiet));
            const __m256 low = _mm256_mul_ps(_mm256_cvtph_ps(_mm256_castsi256_si128(half)), scale);
            const __m256 high = _mm256_mul_ps(_mm256_cvtph_ps(_mm256_extracti128_si256(half, 1)), scale);
            const __m256i nan_low = _mm256_cvtepi16_epi32(_mm256_castsi256_si128(is_nan));
            const __m256i nan_high = _mm256_cvtepi16_epi32(_mm256_extracti128_si256(is_nan, 1));
            const __m256 first = _mm256_blendv_ps(low, nan, _mm256_castsi256_ps(nan_low));
            const __m256 second = _mm256_blendv_ps(high, nan, _mm256_castsi256_ps(nan_high));
            if (streams) {
                _mm256_stream_ps(out + j, first);
                _mm256_stream_ps(out + j + 8, second);
            } else {
                _mm256_storeu_ps(out + j, first);
                _mm256_storeu_ps(out + j + 8, second);
            }
        }
    }
    return i;
}

/// The codes of 32 elements from `in` on, in 16 bits each.
[[gnu::target(AMPSCOPE_TARGET_AVX512)]] inline __m512i load_codes(const std::uint8_t* in) {
    return _mm512_cvtepu8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(in)));
}
[[gnu::target(AMPSCOPE_TARGET_AVX512)]] inline __m512i load_codes(const std::uint16_t* in) {
    return _mm512_loadu_si512(in);
}

/// The same for 32 elements at a time, with an instruction that raises no exceptions.
template <class Code>
[[gnu::target(AMPSCOPE_TARGET_AVX512)]] inline std::size_t decode_half_avx512(const Code* in, float* out, std::size_t n,
                                                                              bool streams, const HalfConstants& k) {
    const __m512i mask = _mm512_set1_epi16(static_cast<short>(k.mask)), magnitude = _mm512_set1_epi16(0x7fff);
    const __m512i nan_from = _mm512_set1_epi16(static_cast<short>(k.nan_from));
    const __m512 nan = _mm512_set1_ps(std::bit_cast<float>(k.nan)), scale = _mm512_set1_ps(k.scale);
    const __m128i left = _mm_cvtsi32_si128(k.left), right = _mm_cvtsi32_si128(k.right);
    std::size_t i = 0;
    for (; i + stream_block <= n; i += stream_block) {
        if (streams) prefetch_block(in + i);
#pragma GCC unroll 2
        for (std::size_t j = i; j < i + stream_block; j += 32) {
            const __m512i half =
                _mm512_and_si512(_mm512_sra_epi16(_mm512_sll_epi16(load_codes(in + j), left), right), mask);
            const __mmask32 is_nan = _mm512_cmpge_epu16_mask(_mm512_and_si512(half, magnitude), nan_from);
            const __m512 low = _mm512_cvt_roundph_ps(_mm512_castsi512_si256(half), _MM_FROUND_NO_EXC);
            const __m512 high = _mm512_cvt_roundph_ps(_mm512_extracti64x4_epi64(half, 1), _MM_FROUND_NO_EXC);
            const __m512 first = _mm512_mask_mov_ps(_mm512_mul_ps(low, scale), static_cast<__mmask16>(is_nan), nan);
            const __m512 second =
                _mm512_mask_mov_ps(_mm512_mul_ps(high, scale), static_cast<__mmask16>(is_nan >> 16), nan);
            if (streams) {
                _mm512_stream_ps(out + j, first);
                _mm512_stream_ps(out + j + 16, second);
            } else {
                _mm512_storeu_ps(out + j, first);
                _mm512_storeu_ps(out + j + 16, second);
            }
        }
    }
    return i;
}
#endif

} // namespace amp::detail

// Conversions by the device's own instructions, through NVIDIA's headers: from compute capability 8.9 on for FP8, from
// 10.0 on for FP6 and FP4. Older devices run the headers' code, the host ours.
#pragma once

#include <ampscope/formats/codec.h>
#include <ampscope/sim/backend/kernels/kernel.h>

#if defined(__CUDACC__)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp4.h>
#include <cuda_fp6.h>
#include <cuda_fp8.h>
#endif

namespace amp::cuda {

/// The formats to which instructions convert.
enum class NativeFormat : std::uint8_t { none, fp32, fp16, bf16, e4m3, e5m2, e2m3, e3m2, e2m1 };

AMPSCOPE_INLINE NativeFormat native_format(const FormatSpec& f) {
    const int shape = 100 * f.exponent_bits + f.fraction_bits;
    if (!f.is_signed || f.bias_offset != 0) return NativeFormat::none;
    if (f.nonfinite == NonFinite::ieee)
        return shape == 823   ? NativeFormat::fp32
               : shape == 510 ? NativeFormat::fp16
               : shape == 807 ? NativeFormat::bf16
               : shape == 502 ? NativeFormat::e5m2
                              : NativeFormat::none;
    if (f.nonfinite == NonFinite::nan_only && shape == 403) return NativeFormat::e4m3;
    if (f.nonfinite != NonFinite::none) return NativeFormat::none;
    return shape == 203   ? NativeFormat::e2m3
           : shape == 302 ? NativeFormat::e3m2
           : shape == 201 ? NativeFormat::e2m1
                          : NativeFormat::none;
}

#if defined(__CUDA_ARCH__)

__device__ inline float canonical(float x) { return x != x ? __uint_as_float(0x7fc00000) : x; }

/// x as a float rounded to odd: rounding it to at most 22 bits gives the same as rounding x (Boldo and Melquiond 2008).
__device__ inline float to_odd(double x) {
    const float down = __double2float_rz(x);
    return static_cast<double>(down) != x ? __uint_as_float(__float_as_uint(down) | 1) : down;
}

/// The code of x by the saturating instruction. Not for fp32.
__device__ inline std::uint32_t saturating_code(NativeFormat f, float x) {
    switch (f) {
    case NativeFormat::e4m3: return __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3);
    case NativeFormat::e5m2: return __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E5M2);
    case NativeFormat::e2m3: return __nv_cvt_float_to_fp6(x, __NV_E2M3, cudaRoundNearest);
    case NativeFormat::e3m2: return __nv_cvt_float_to_fp6(x, __NV_E3M2, cudaRoundNearest);
    case NativeFormat::e2m1: return __nv_cvt_float_to_fp4(x, __NV_E2M1, cudaRoundNearest);
    default: return 0;
    }
}

__device__ inline float value_of_code(NativeFormat f, std::uint32_t code) {
    const auto byte = static_cast<unsigned char>(code);
    switch (f) {
    case NativeFormat::e4m3: return __half2float(__half(__nv_cvt_fp8_to_halfraw(byte, __NV_E4M3)));
    case NativeFormat::e5m2: return __half2float(__half(__nv_cvt_fp8_to_halfraw(byte, __NV_E5M2)));
    case NativeFormat::e2m3: return __half2float(__half(__nv_cvt_fp6_to_halfraw(byte, __NV_E2M3)));
    case NativeFormat::e3m2: return __half2float(__half(__nv_cvt_fp6_to_halfraw(byte, __NV_E3M2)));
    case NativeFormat::e2m1: return __half2float(__half(__nv_cvt_fp4_to_halfraw(byte, __NV_E2M1)));
    default: return 0;
    }
}

#endif

/// x rounded to nearest-even, with overflow to infinity, as quantize(f, x) does; by an instruction if there is one.
AMPSCOPE_CALL inline float native_round(const FormatSpec& f, double x) {
#if defined(__CUDA_ARCH__)
    switch (native_format(f)) {
    case NativeFormat::fp32: return canonical(__double2float_rn(x));
    case NativeFormat::fp16: return canonical(__half2float(__float2half_rn(to_odd(x))));
    case NativeFormat::bf16: return canonical(__bfloat162float(__float2bfloat16_rn(to_odd(x))));
    default: break; // the others saturate
    }
#endif
    return quantize(f, x);
}

/// x rounded to nearest-even, with overflow and infinity to the largest value; by an instruction if there is one.
AMPSCOPE_CALL inline float native_saturate(const FormatSpec& f, float x) {
#if defined(__CUDA_ARCH__)
    const NativeFormat native = native_format(f);
    if (native >= NativeFormat::e4m3) return canonical(value_of_code(native, saturating_code(native, x)));
#endif
    return quantize(f, x, {.overflow = Overflow::saturate_all});
}

} // namespace amp::cuda

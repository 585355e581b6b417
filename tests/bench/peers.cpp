// Casts as the headers of other libraries do them, for the script compare, which compiles this file for each of them
// that is installed. Each function takes n floats from x and stores in y what the format makes of them.
#include <cstddef>

#ifdef PEER_eigen
#include <Eigen/Core>

namespace {
template <class Number>
void eigen(const float* x, float* y, std::size_t n) {
    using Floats = Eigen::ArrayXf;
    const auto size = static_cast<Eigen::Index>(n);
    Eigen::Map<Floats>(y, size) = Eigen::Map<const Floats>(x, size).cast<Number>().template cast<float>();
}
} // namespace

extern "C" {
void eigen_fp16(const float* x, float* y, std::size_t n) { eigen<Eigen::half>(x, y, n); }
void eigen_bf16(const float* x, float* y, std::size_t n) { eigen<Eigen::bfloat16>(x, y, n); }
}
#endif

#ifdef PEER_nvidia
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

namespace {
template <class Cast>
void each(const float* x, float* y, std::size_t n, const Cast& cast) {
    for (std::size_t i = 0; i < n; ++i) y[i] = cast(x[i]);
}

template <__nv_fp8_interpretation_t format>
float fp8(float x) {
    const __nv_fp8_storage_t code = __nv_cvt_float_to_fp8(x, __NV_SATFINITE, format);
    return __half2float(__half(__nv_cvt_fp8_to_halfraw(code, format)));
}
} // namespace

extern "C" {
void nvidia_fp16(const float* x, float* y, std::size_t n) {
    each(x, y, n, [](float v) { return __half2float(__float2half_rn(v)); });
}
void nvidia_bf16(const float* x, float* y, std::size_t n) {
    each(x, y, n, [](float v) { return __bfloat162float(__float2bfloat16_rn(v)); });
}
void nvidia_e4m3(const float* x, float* y, std::size_t n) { each(x, y, n, &fp8<__NV_E4M3>); }
void nvidia_e5m2(const float* x, float* y, std::size_t n) { each(x, y, n, &fp8<__NV_E5M2>); }
}
#endif

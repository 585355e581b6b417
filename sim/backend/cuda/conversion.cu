#include <ampscope/sim/backend/cuda/conversion.h>

#include <ampscope/formats/bits.h>
#include <ampscope/formats/codec.h>
#include <ampscope/sim/backend/cuda/launch.cuh>
#include <ampscope/sim/backend/cuda/native.cuh>

#include <algorithm>

namespace amp {

namespace {

template <class T>
DeviceArray<T> uploaded(const CudaDevice& device, std::span<const T> values) {
    DeviceArray<T> array(device, values.size());
    array.upload(values.data());
    return array;
}

AMPSCOPE_INLINE std::uint32_t code_of(const FormatSpec& f, float x, const BatchOptions& o, std::int64_t i) {
    const bool random = o.policy.rounding == Rounding::stochastic;
    const std::uint64_t index = o.first_index + static_cast<std::uint64_t>(i);
    return encode(f, x, o.policy, random ? o.key.word(index, o.policy.random_bits) : 0);
}

/// Indices of a histogram's counters: zeros, NaNs, infinities, then mantissa classes by exponent from 2^-149 on.
constexpr std::int64_t zeros = 0, nans = 1, infinities = 2, first_row = 3, lowest = -149, rows = 128 - lowest;

constexpr Policy nosat{.nan = NanRule::all_ones},
    satfinite{.overflow = Overflow::saturate_all, .nan = NanRule::all_ones};
constexpr Policy with(Policy policy, Rounding rounding) {
    policy.rounding = rounding;
    return policy;
}

constexpr NativeConversion conversions[] = {
    {"cvt.rn.f16.f32", "fp16", nosat, 80},
    {"cvt.rz.f16.f32", "fp16", with(nosat, Rounding::toward_zero), 80},
    {"cvt.rm.f16.f32", "fp16", with(nosat, Rounding::down), 80},
    {"cvt.rp.f16.f32", "fp16", with(nosat, Rounding::up), 80},
    {"cvt.rn.bf16.f32", "bf16", nosat, 80},
    {"cvt.rz.bf16.f32", "bf16", with(nosat, Rounding::toward_zero), 80},
    {"cvt.rna.tf32.f32", "tf32", with(nosat, Rounding::nearest_away), 80, true, true},
    {"cvt.rn.satfinite.e4m3.f32", "e4m3", satfinite, 89},
    {"cvt.rn.satfinite.e5m2.f32", "e5m2", satfinite, 89},
    {"e4m3 without saturation", "e4m3", nosat, 89},
    {"e5m2 without saturation", "e5m2", nosat, 89},
    {"cvt.rn.satfinite.e2m3.f32", "e2m3", satfinite, 100},
    {"cvt.rn.satfinite.e3m2.f32", "e3m2", satfinite, 100},
    {"cvt.rn.satfinite.e2m1.f32", "e2m1", satfinite, 100},
    {"cvt.rz.satfinite.ue8m0.f32", "e8m0", with(satfinite, Rounding::toward_zero), 100, false},
    {"cvt.rp.satfinite.ue8m0.f32", "e8m0", with(satfinite, Rounding::up), 100, false},
};

} // namespace

void encode(const CudaDevice& device, const FormatSpec& format, std::span<const float> in, std::span<std::uint32_t> out,
            const BatchOptions& options) {
    const DeviceArray<float> from = uploaded(device, in);
    const DeviceArray<std::uint32_t> to(device, out.size());
    const float* const x = from.data();
    std::uint32_t* const codes = to.data();
    cuda::each(device, static_cast<std::int64_t>(in.size()),
               [=] AMPSCOPE_DEVICE(std::int64_t i) { codes[i] = code_of(format, x[i], options, i); });
    to.download(out.data());
}

void quantize(const CudaDevice& device, const FormatSpec& format, std::span<const float> in, std::span<float> out,
              const BatchOptions& options) {
    const DeviceArray<float> values = uploaded(device, in);
    float* const x = values.data();
    cuda::each(device, static_cast<std::int64_t>(in.size()), [=] AMPSCOPE_DEVICE(std::int64_t i) {
        x[i] = decode(format, code_of(format, x[i], options, i), options.policy.nan);
    });
    values.download(out.data());
}

void decode(const CudaDevice& device, const FormatSpec& format, std::span<const std::uint32_t> in,
            std::span<float> out) {
    const DeviceArray<std::uint32_t> from = uploaded(device, in);
    const DeviceArray<float> to(device, out.size());
    const std::uint32_t* const codes = from.data();
    float* const x = to.data();
    cuda::each(device, static_cast<std::int64_t>(in.size()),
               [=] AMPSCOPE_DEVICE(std::int64_t i) { x[i] = decode(format, codes[i]); });
    to.download(out.data());
}

MagnitudeHistogram count_magnitudes(const CudaDevice& device, std::span<const float> in) {
    const DeviceArray<float> values = uploaded(device, in);
    const DeviceArray<std::uint64_t> counters(device, static_cast<std::size_t>(first_row + rows * mantissa_classes));
    const float* const x = values.data();
    std::uint64_t* const counts = counters.data();
    cuda::each(device, static_cast<std::int64_t>(in.size()), [=] AMPSCOPE_DEVICE(std::int64_t i) {
        const Unpacked u = unpack(x[i]);
        std::int64_t at = u.kind == Kind::zero ? zeros : u.kind == Kind::nan ? nans : infinities;
        if (u.kind == Kind::finite) {
            const int shift = leading_zeros(u.significand);
            // The leading one itself is not part of the mantissa.
            at = first_row + (u.exponent + 63 - shift - lowest) * mantissa_classes +
                 mantissa_class(u.significand << shift << 1);
        }
        cuda::atomic_add(counts[at], std::uint64_t{1});
    });
    const std::vector<std::uint64_t> found = counters.read();
    MagnitudeHistogram histogram{.zero = found[zeros], .nan = found[nans], .inf = found[infinities]};
    for (std::int64_t r = 0; r < rows; ++r) {
        MantissaRow row{};
        const auto first = static_cast<std::size_t>(first_row + r * mantissa_classes);
        for (std::size_t i = 0; i < row.size(); ++i) row[i] = found[first + i];
        if (row != MantissaRow{}) histogram.rows[static_cast<int>(r + lowest)] = row;
    }
    return histogram;
}

std::span<const NativeConversion> native_conversions() { return conversions; }

#if defined(__CUDACC__)

namespace {

/// Converts x by native_conversions()[which].
__device__ std::uint32_t convert(int which, float x) {
    switch (which) {
    case 0: return __half_as_ushort(__float2half_rn(x));
    case 1: return __half_as_ushort(__float2half_rz(x));
    case 2: return __half_as_ushort(__float2half_rd(x));
    case 3: return __half_as_ushort(__float2half_ru(x));
    case 4: return __bfloat16_as_ushort(__float2bfloat16_rn(x));
    case 5: return __bfloat16_as_ushort(__float2bfloat16_rz(x));
    case 6: {
        std::uint32_t bits = 0;
        asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
        return bits >> 13;
    }
    case 7: return __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3);
    case 8: return __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E5M2);
    case 9: return __nv_cvt_float_to_fp8(x, __NV_NOSAT, __NV_E4M3);
    case 10: return __nv_cvt_float_to_fp8(x, __NV_NOSAT, __NV_E5M2);
    case 11: return __nv_cvt_float_to_fp6(x, __NV_E2M3, cudaRoundNearest);
    case 12: return __nv_cvt_float_to_fp6(x, __NV_E3M2, cudaRoundNearest);
    case 13: return __nv_cvt_float_to_fp4(x, __NV_E2M1, cudaRoundNearest);
    case 14: return __nv_cvt_float_to_e8m0(x, __NV_SATFINITE, cudaRoundZero);
    case 15: return __nv_cvt_float_to_e8m0(x, __NV_SATFINITE, cudaRoundPosInf);
    default: return 0;
    }
}
static_assert(std::size(conversions) == 16);

__global__ void convert_kernel(int which, std::int64_t n, const float* in, std::uint32_t* out) {
    const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < n) out[i] = convert(which, in[i]);
}

/// The least time in seconds, over several trials, of what `pass` launches.
template <class Pass>
double least_time(const Pass& pass) {
    cudaEvent_t begin{}, end{};
    cuda::check(cudaEventCreate(&begin), "cudaEventCreate");
    cuda::check(cudaEventCreate(&end), "cudaEventCreate");
    float least = 0;
    for (int i = 0; i < 20; ++i) {
        cuda::check(cudaEventRecord(begin), "cudaEventRecord");
        pass();
        cuda::check(cudaEventRecord(end), "cudaEventRecord");
        cuda::check(cudaEventSynchronize(end), "cudaEventSynchronize");
        float milliseconds = 0;
        cuda::check(cudaEventElapsedTime(&milliseconds, begin, end), "cudaEventElapsedTime");
        least = i == 0 ? milliseconds : std::min(least, milliseconds);
    }
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    return least * 1e-3;
}

} // namespace

void encode_native(const CudaDevice& device, std::size_t which, std::span<const float> in,
                   std::span<std::uint32_t> out) {
    const DeviceArray<float> from = uploaded(device, in);
    const DeviceArray<std::uint32_t> to(device, out.size());
    const auto n = static_cast<std::int64_t>(in.size());
    if (n == 0) return;
    convert_kernel<<<static_cast<unsigned>((n + 127) / 128), 128>>>(static_cast<int>(which), n, from.data(), to.data());
    cuda::check(cudaGetLastError(), "launch");
    to.download(out.data());
}

ConversionTime time_conversion(const CudaDevice& device, const FormatSpec& format, std::size_t n) {
    const DeviceArray<float> from(device, n), to(device, n);
    const float* const in = from.data();
    float* const out = to.data();
    const auto count = static_cast<std::int64_t>(n);
    return {.quantize = least_time([&] {
                cuda::each(device, count, [=] AMPSCOPE_DEVICE(std::int64_t i) { out[i] = quantize(format, in[i]); });
            }),
            .native = least_time([&] {
                cuda::each(device, count,
                           [=] AMPSCOPE_DEVICE(std::int64_t i) { out[i] = cuda::native_saturate(format, in[i]); });
            }),
            .copy = least_time(
                [&] { cuda::each(device, count, [=] AMPSCOPE_DEVICE(std::int64_t i) { out[i] = in[i]; }); })};
}

#else

void encode_native(const CudaDevice&, std::size_t, std::span<const float>, std::span<std::uint32_t>) {}
ConversionTime time_conversion(const CudaDevice&, const FormatSpec&, std::size_t) { return {}; }

#endif

} // namespace amp

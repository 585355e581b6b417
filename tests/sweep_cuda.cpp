// Conversions of all 2^32 floats against NVIDIA's own host code in cuda_fp16.h, cuda_bf16.h, cuda_fp8.h, cuda_fp6.h and
// cuda_fp4.h, bit for bit, NaN included, in every rounding and saturation that they have; doubles with an odd stride.
// Skipped without the headers.
#include "cases.h"
#include "needs.h"

#include <doctest/doctest.h>

#if __has_include(<cuda_fp4.h>)
#define AMPSCOPE_CUDA_HEADERS 1
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp4.h>
#include <cuda_fp6.h>
#include <cuda_fp8.h>
#endif

using namespace amp;
using namespace amp::test;

#ifdef AMPSCOPE_CUDA_HEADERS

namespace {

constexpr std::uint64_t floats = std::uint64_t{1} << 32;

std::uint32_t bits(__half h) { return __half_raw(h).x; }
std::uint32_t bits(__nv_bfloat16 h) { return __nv_bfloat16_raw(h).x; }

/// Compares amp's encode under a profile with `theirs`, for floats or for doubles near them.
template <class T = float>
void prove_same(std::string_view name, std::string_view profile_name, Rounding rounding, Shard part,
                const auto& theirs) {
    const FormatSpec f = format(name);
    Policy policy = profile(profile_name).policy;
    policy.rounding = rounding;
    const std::string_view type = std::is_same_v<T, float> ? "float" : "double";
    prove(
        fmt::format("{} to {} rounding {} {} against NVIDIA's host code", type, name, int(rounding), profile_name),
        floats,
        [&](std::uint64_t i, Tally& tally) {
            const auto y = std::bit_cast<float>(static_cast<std::uint32_t>(i));
            T x = y;
            // A double next to or between floats: only a single rounding gets these right.
            if constexpr (std::is_same_v<T, double>) {
                const std::uint64_t h = mix(i);
                x = std::bit_cast<double>(std::bit_cast<std::uint64_t>(double{y}) ^ (h % 4 == 0 ? h >> 35 : h % 3));
                if (std::isnan(x)) return; // NVIDIA's host code keeps a double's NaN in FP8 alone
            }
            tally.expect(encode(f, x, policy), static_cast<std::uint32_t>(theirs(x)), [&] { return Tally::show(x); });
        },
        part);
}

} // namespace

TEST_CASE("all floats, nearest even") {
    const auto nearest = Rounding::nearest_even;
    prove_same("fp16", "cuda-nosat", nearest, shard(), [](float x) { return bits(__float2half_rn(x)); });
    prove_same("bf16", "cuda-nosat", nearest, shard(), [](float x) { return bits(__float2bfloat16_rn(x)); });
    prove_same("e4m3", "cuda-nosat", nearest, shard(),
               [](float x) { return __nv_cvt_float_to_fp8(x, __NV_NOSAT, __NV_E4M3); });
    prove_same("e5m2", "cuda-nosat", nearest, shard(),
               [](float x) { return __nv_cvt_float_to_fp8(x, __NV_NOSAT, __NV_E5M2); });
    prove_same("e4m3", "cuda-satfinite", nearest, shard(),
               [](float x) { return __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3); });
    prove_same("e5m2", "cuda-satfinite", nearest, shard(),
               [](float x) { return __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E5M2); });
}

TEST_CASE("all floats into FP6 and FP4") {
    const auto nearest = Rounding::nearest_even;
    prove_same("e2m3", "cuda-satfinite", nearest, shard(),
               [](float x) { return __nv_cvt_float_to_fp6(x, __NV_E2M3, cudaRoundNearest); });
    prove_same("e3m2", "cuda-satfinite", nearest, shard(),
               [](float x) { return __nv_cvt_float_to_fp6(x, __NV_E3M2, cudaRoundNearest); });
    prove_same("e2m1", "cuda-satfinite", nearest, shard(),
               [](float x) { return __nv_cvt_float_to_fp4(x, __NV_E2M1, cudaRoundNearest); });
}

TEST_CASE("all floats from zero up into E8M0") {
    const FormatSpec f = format("e8m0");
    for (const auto& [name, saturation] : {std::pair{"cuda-nosat", __NV_NOSAT}, {"cuda-satfinite", __NV_SATFINITE}})
        for (const auto& [rounding, mode] :
             {std::pair{Rounding::toward_zero, cudaRoundZero}, {Rounding::up, cudaRoundPosInf}}) {
            Policy policy = profile(name).policy;
            policy.rounding = rounding;
            prove(
                fmt::format("float to e8m0 rounding {} {} against NVIDIA's host code", int(rounding), name), floats / 2,
                [&, saturation = saturation, mode = mode](std::uint64_t i, Tally& tally) {
                    const auto x = std::bit_cast<float>(static_cast<std::uint32_t>(i));
                    const std::uint32_t want = __nv_cvt_float_to_e8m0(x, saturation, mode);
                    tally.expect(encode(f, x, policy), want, [&] { return Tally::show(x); });
                },
                shard());
        }
}

TEST_CASE("all floats, directed modes") {
    prove_same("fp16", "cuda-nosat", Rounding::toward_zero, shard(), [](float x) { return bits(__float2half_rz(x)); });
    prove_same("fp16", "cuda-nosat", Rounding::down, shard(), [](float x) { return bits(__float2half_rd(x)); });
    prove_same("fp16", "cuda-nosat", Rounding::up, shard(), [](float x) { return bits(__float2half_ru(x)); });
    prove_same("bf16", "cuda-nosat", Rounding::toward_zero, shard(),
               [](float x) { return bits(__float2bfloat16_rz(x)); });
    prove_same("bf16", "cuda-nosat", Rounding::down, shard(), [](float x) { return bits(__float2bfloat16_rd(x)); });
    prove_same("bf16", "cuda-nosat", Rounding::up, shard(), [](float x) { return bits(__float2bfloat16_ru(x)); });
}

TEST_CASE("doubles, every 61st") {
    const Shard part{shard().first, shard().count * 61};
    const auto nearest = Rounding::nearest_even;
    prove_same<double>("fp16", "cuda-nosat", nearest, part, [](double x) { return bits(__double2half(x)); });
    prove_same<double>("bf16", "cuda-nosat", nearest, part, [](double x) { return bits(__double2bfloat16(x)); });
    prove_same<double>("e4m3", "cuda-nosat", nearest, part,
                       [](double x) { return __nv_cvt_double_to_fp8(x, __NV_NOSAT, __NV_E4M3); });
    prove_same<double>("e5m2", "cuda-nosat", nearest, part,
                       [](double x) { return __nv_cvt_double_to_fp8(x, __NV_NOSAT, __NV_E5M2); });
    prove_same<double>("e3m2", "cuda-satfinite", nearest, part,
                       [](double x) { return __nv_cvt_double_to_fp6(x, __NV_E3M2, cudaRoundNearest); });
    prove_same<double>("e2m1", "cuda-satfinite", nearest, part,
                       [](double x) { return __nv_cvt_double_to_fp4(x, __NV_E2M1, cudaRoundNearest); });
}

TEST_CASE("decode, every code") {
    const auto prove_decode = [](std::string_view name, const auto& theirs) {
        const FormatSpec f = format(name);
        prove(fmt::format("{} decode against NVIDIA's host code", name), std::uint64_t{1} << f.bits(),
              [&](std::uint64_t i, Tally& tally) {
                  const float want = theirs(static_cast<unsigned char>(i));
                  const float got = decode(f, static_cast<std::uint32_t>(i));
                  tally.expect(got, std::isnan(want) ? std::bit_cast<float>(0x7fc00000) : want,
                               [&] { return fmt::format("{:#x}", i); });
              });
    };
    const auto to_float = [](__half_raw h) { return __half2float(__half(h)); };
    prove_decode("e4m3", [&](unsigned char c) { return to_float(__nv_cvt_fp8_to_halfraw(c, __NV_E4M3)); });
    prove_decode("e5m2", [&](unsigned char c) { return to_float(__nv_cvt_fp8_to_halfraw(c, __NV_E5M2)); });
    prove_decode("e2m3", [&](unsigned char c) { return to_float(__nv_cvt_fp6_to_halfraw(c, __NV_E2M3)); });
    prove_decode("e3m2", [&](unsigned char c) { return to_float(__nv_cvt_fp6_to_halfraw(c, __NV_E3M2)); });
    prove_decode("e2m1", [&](unsigned char c) { return to_float(__nv_cvt_fp4_to_halfraw(c, __NV_E2M1)); });
}

#else

TEST_CASE("NVIDIA's host code") {
    skip("cuda_fp16.h ... cuda_fp4.h of CUDA 12.8 or later are not here (tools/check --all gets them from PyPI; else "
         "cmake --preset dev -DCUDA_HEADERS=FOLDER)");
}

#endif

// The matrix instructions themselves.
#pragma once

#include <ampscope/sim/backend/cuda/tile.cuh>

#if defined(__CUDACC__)

namespace amp::cuda {

#define AMPSCOPE_MMA_F32(shape, types)                                                                                 \
    asm volatile("mma.sync.aligned." shape ".row.col.f32." types ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, " \
                 "{%0, %1, %2, %3};"                                                                                   \
                 : "+f"(d.single[0]), "+f"(d.single[1]), "+f"(d.single[2]), "+f"(d.single[3])                          \
                 : "r"(f.a[0]), "r"(f.a[1]), "r"(f.a[2]), "r"(f.a[3]), "r"(f.b[0]), "r"(f.b[1]))
#define AMPSCOPE_MMA_F16(shape, types)                                                                                 \
    asm volatile("mma.sync.aligned." shape ".row.col.f16." types ".f16 {%0, %1}, {%2, %3, %4, %5}, {%6, %7}, "         \
                 "{%0, %1};"                                                                                           \
                 : "+r"(d.half[0]), "+r"(d.half[1])                                                                    \
                 : "r"(f.a[0]), "r"(f.a[1]), "r"(f.a[2]), "r"(f.a[3]), "r"(f.b[0]), "r"(f.b[1]))

/// d += a b for a warp.
template <Mma mma>
__device__ inline void multiply_add(Sums<adds_in_fp16(mma)>& d, const Fragments& f) {
    if constexpr (mma == Mma::f16) AMPSCOPE_MMA_F32("m16n8k16", "f16.f16");
    if constexpr (mma == Mma::f16_acc16) AMPSCOPE_MMA_F16("m16n8k16", "f16.f16");
    if constexpr (mma == Mma::bf16) AMPSCOPE_MMA_F32("m16n8k16", "bf16.bf16");
    if constexpr (mma == Mma::tf32) AMPSCOPE_MMA_F32("m16n8k8", "tf32.tf32");
#if __CUDA_ARCH__ >= 890
    if constexpr (mma == Mma::e4m3_e4m3) AMPSCOPE_MMA_F32("m16n8k32", "e4m3.e4m3");
    if constexpr (mma == Mma::e4m3_e5m2) AMPSCOPE_MMA_F32("m16n8k32", "e4m3.e5m2");
    if constexpr (mma == Mma::e5m2_e4m3) AMPSCOPE_MMA_F32("m16n8k32", "e5m2.e4m3");
    if constexpr (mma == Mma::e5m2_e5m2) AMPSCOPE_MMA_F32("m16n8k32", "e5m2.e5m2");
    if constexpr (mma == Mma::e4m3_e4m3_acc16) AMPSCOPE_MMA_F16("m16n8k32", "e4m3.e4m3");
    if constexpr (mma == Mma::e4m3_e5m2_acc16) AMPSCOPE_MMA_F16("m16n8k32", "e4m3.e5m2");
    if constexpr (mma == Mma::e5m2_e4m3_acc16) AMPSCOPE_MMA_F16("m16n8k32", "e5m2.e4m3");
    if constexpr (mma == Mma::e5m2_e5m2_acc16) AMPSCOPE_MMA_F16("m16n8k32", "e5m2.e5m2");
#endif
}

#undef AMPSCOPE_MMA_F32
#undef AMPSCOPE_MMA_F16

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// The descriptor that wgmma takes for an operand in shared memory.
__device__ inline std::uint64_t descriptor(const std::uint32_t* shared) {
    const auto address = static_cast<std::uint64_t>(__cvta_generic_to_shared(shared));
    return (address & 0x3ffff) >> 4 | static_cast<std::uint64_t>(core_bytes_along_k >> 4) << 16 |
           static_cast<std::uint64_t>(core_bytes_next_lines >> 4) << 32;
}

// One piece of assembly from fence to wait, as the matrix unit owns the registers of the sums in between.
#define AMPSCOPE_WGMMA(shape, types, sums, a, b, rest)                                                                 \
    "{.reg .pred p; setp.eq.u32 p, 0, 0; wgmma.fence.sync.aligned; wgmma.mma_async.sync.aligned." shape "." types      \
    " {" sums "}, " a ", " b ", p, 1, 1" rest "; wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;}"
#define AMPSCOPE_WGMMA_F32(shape, types, rest)                                                                         \
    asm volatile(AMPSCOPE_WGMMA(shape, "f32." types, "%0, %1, %2, %3", "%4", "%5", rest)                               \
                 : "+f"(d.single[0]), "+f"(d.single[1]), "+f"(d.single[2]), "+f"(d.single[3])                          \
                 : "l"(a), "l"(b)                                                                                      \
                 : "memory")
#define AMPSCOPE_WGMMA_F16(shape, types, rest)                                                                         \
    asm volatile(AMPSCOPE_WGMMA(shape, "f16." types, "%0, %1", "%2", "%3", rest)                                       \
                 : "+r"(d.half[0]), "+r"(d.half[1])                                                                    \
                 : "l"(a), "l"(b)                                                                                      \
                 : "memory")

/// d += a b for a warpgroup: 64 lines of a and 8 lines of b, given by their descriptors. Warp w has rows 16 w ... 16 w
/// + 15.
template <Mma mma>
__device__ inline void multiply_add(Sums<adds_in_fp16(mma)>& d, std::uint64_t a, std::uint64_t b) {
    if constexpr (mma == Mma::f16) AMPSCOPE_WGMMA_F32("m64n8k16", "f16.f16", ", 0, 0");
    if constexpr (mma == Mma::f16_acc16) AMPSCOPE_WGMMA_F16("m64n8k16", "f16.f16", ", 0, 0");
    if constexpr (mma == Mma::bf16) AMPSCOPE_WGMMA_F32("m64n8k16", "bf16.bf16", ", 0, 0");
    if constexpr (mma == Mma::tf32) AMPSCOPE_WGMMA_F32("m64n8k8", "tf32.tf32", "");
    if constexpr (mma == Mma::e4m3_e4m3) AMPSCOPE_WGMMA_F32("m64n8k32", "e4m3.e4m3", "");
    if constexpr (mma == Mma::e4m3_e5m2) AMPSCOPE_WGMMA_F32("m64n8k32", "e4m3.e5m2", "");
    if constexpr (mma == Mma::e5m2_e4m3) AMPSCOPE_WGMMA_F32("m64n8k32", "e5m2.e4m3", "");
    if constexpr (mma == Mma::e5m2_e5m2) AMPSCOPE_WGMMA_F32("m64n8k32", "e5m2.e5m2", "");
    if constexpr (mma == Mma::e4m3_e4m3_acc16) AMPSCOPE_WGMMA_F16("m64n8k32", "e4m3.e4m3", "");
    if constexpr (mma == Mma::e4m3_e5m2_acc16) AMPSCOPE_WGMMA_F16("m64n8k32", "e4m3.e5m2", "");
    if constexpr (mma == Mma::e5m2_e4m3_acc16) AMPSCOPE_WGMMA_F16("m64n8k32", "e5m2.e4m3", "");
    if constexpr (mma == Mma::e5m2_e5m2_acc16) AMPSCOPE_WGMMA_F16("m64n8k32", "e5m2.e5m2", "");
}

#undef AMPSCOPE_WGMMA
#undef AMPSCOPE_WGMMA_F32
#undef AMPSCOPE_WGMMA_F16

#endif

} // namespace amp::cuda

#endif

// What an op computes, element by element or row by row: one source for the processor and for devices.
//
// A kernel is a struct with a static function `run` marked AMPSCOPE_KERNEL: plain loops over n elements or over a row,
// results in double. The backends call it for as much as suits them (a processor for a block of elements, a device's
// thread for one) and round what it returns, once. An op that is nothing but a kernel has its run() here, too, for both
// backends: they offer in(), out(), map(), map_rows() and copy() by the same names.
#pragma once

#include <bit>
#include <cstdint>

#if defined(__CUDACC__)
#define AMPSCOPE_DEVICE __host__ __device__            // before what devices run
#define AMPSCOPE_CALL __host__ __device__ __noinline__ // of what would be copied into too many places
#define AMPSCOPE_INLINE __host__ __device__ inline
#define AMPSCOPE_KERNEL __host__ __device__ static inline
#define AMPSCOPE_INDEPENDENT
#else
#include <ampscope/formats/instruction_set.h>
#define AMPSCOPE_DEVICE
#define AMPSCOPE_CALL
#define AMPSCOPE_INLINE [[gnu::always_inline]] inline
#endif

namespace amp::kernels {

/// x, a NaN by its one name: hardware propagates payloads and signs as it likes.
AMPSCOPE_INLINE float named(float x) { return x != x ? std::bit_cast<float>(0x7fc00000) : x; }

/// The lanes of a sum added up: lane i takes lane i + 8, i + 4, i + 2, i + 1.
AMPSCOPE_INLINE double lane_total(double (&lanes)[16]) {
    for (int half = 8; half > 0; half /= 2)
        for (int l = 0; l < half; ++l) lanes[l] += lanes[l + half];
    return lanes[0];
}

/// The sum of term(0) ... term(n - 1) in an order that vectors of any width up to 16 follow: lane i mod 16 adds its
/// terms in order from +0, then the lanes are added up.
template <class Term>
AMPSCOPE_INLINE double lane_sum(std::int64_t n, const Term& term) {
    double lanes[16]{};
    const std::int64_t whole = n / 16 * 16;
    for (std::int64_t i = 0; i < whole; i += 16)
        for (int l = 0; l < 16; ++l) lanes[l] += term(i + l);
    for (std::int64_t i = whole; i < n; ++i) lanes[i - whole] += term(i);
    return lane_total(lanes);
}

} // namespace amp::kernels

// What an op computes, element by element or row by row, in one source for the processor and for devices.
//
// A kernel is a struct with a static function `run` marked AMPSCOPE_KERNEL: plain loops over n elements or over a row,
// with results in double. Each backend calls it with a size that suits it (the processor for a block of elements, a
// thread of a device for one) and rounds the results once. An op that is nothing but a kernel has its run() here, too,
// for both backends: they offer in(), out(), map(), map_rows() and copy() under the same names.
#pragma once

#include <bit>
#include <cstdint>

#if defined(__CUDACC__)
#define AMPSCOPE_DEVICE __host__ __device__            // for functions that devices run
#define AMPSCOPE_CALL __host__ __device__ __noinline__ // for those too large to be inlined everywhere
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

/// x; every NaN becomes 0x7fc00000, since hardware treats payloads and signs of NaNs in different ways.
AMPSCOPE_INLINE float named(float x) { return x != x ? std::bit_cast<float>(0x7fc00000) : x; }

/// Adds up the 16 lanes of a sum: lane i adds lane i + 8, then i + 4, i + 2, i + 1.
AMPSCOPE_INLINE double lane_total(double (&lanes)[16]) {
    for (int half = 8; half > 0; half /= 2)
        for (int l = 0; l < half; ++l) lanes[l] += lanes[l + half];
    return lanes[0];
}

/// The sum of term(0) ... term(n - 1) in an order that suits vectors of up to 16 elements: lane i mod 16 adds its terms
/// in order, from +0; then the lanes are added up.
template <class Term>
AMPSCOPE_INLINE double lane_sum(std::int64_t n, const Term& term) {
    double lanes[16]{};
    const std::int64_t whole = n / 16 * 16;
    for (std::int64_t i = 0; i < whole; i += 16)
        for (int l = 0; l < 16; ++l) lanes[l] += term(i + l);
    for (std::int64_t i = whole; i < n; ++i) lanes[i - whole] += term(i);
    return lane_total(lanes);
}

/// The greatest of n >= 1 numbers, in lanes as lane_sum(). NaNs are passed over, but for one in the first place.
AMPSCOPE_INLINE float greatest(const float* x, std::int64_t n) {
    float lanes[16];
    for (float& lane : lanes) lane = x[0];
    const std::int64_t whole = n / 16 * 16;
    for (std::int64_t i = 0; i < whole; i += 16)
        for (int l = 0; l < 16; ++l) lanes[l] = x[i + l] > lanes[l] ? x[i + l] : lanes[l];
    for (std::int64_t i = whole; i < n; ++i) lanes[i - whole] = x[i] > lanes[i - whole] ? x[i] : lanes[i - whole];
    for (int half = 8; half > 0; half /= 2)
        for (int l = 0; l < half; ++l) lanes[l] = lanes[l + half] > lanes[l] ? lanes[l + half] : lanes[l];
    return lanes[0];
}

} // namespace amp::kernels

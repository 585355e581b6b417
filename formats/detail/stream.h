// A loop over arrays that are larger than the caches. Results bypass the caches, so that a store need not read the
// output first, and operands are prefetched. Without it, the processors measured (Sapphire Rapids) wait for operands as
// soon as a loop computes more than a copy does: toward_zero takes three times as long.
#pragma once

#include <ampscope/formats/instruction_set.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace amp::detail {

/// Number of elements that are stored together past the caches: whole cache lines for any type.
inline constexpr std::size_t stream_block = 64;

/// Number of elements of `out` before its first cache line begins, at most n.
template <class T>
std::size_t unaligned_head(const T* out, std::size_t n) {
    const std::size_t beyond = reinterpret_cast<std::uintptr_t>(out) % 64;
    return beyond == 0 ? 0 : std::min(n, (64 - beyond) / sizeof(T));
}

template <class T>
[[gnu::always_inline]] inline void stream(const T* from, T* to) {
#if defined(__x86_64__)
    const auto* source = reinterpret_cast<const __m128i*>(from);
    auto* target = reinterpret_cast<__m128i*>(to);
#pragma GCC unroll 16
    for (std::size_t i = 0; i < stream_block * sizeof(T) / 16; ++i)
        _mm_stream_si128(target + i, _mm_load_si128(source + i));
#else
    std::copy_n(from, stream_block, to);
#endif
}

/// To be called after the last streamed store: orders these stores before what follows.
inline void stream_end() {
#if defined(__x86_64__)
    _mm_sfence();
#endif
}

/// Prefetches what a later block of the input will read. Never faults, so the address may lie beyond the array.
template <class T>
[[gnu::always_inline]] inline void prefetch_block(const T* in) {
    constexpr std::uintptr_t ahead = 4096, line = 64; // bytes
    const auto address = reinterpret_cast<std::uintptr_t>(in) + ahead;
#pragma GCC unroll 16
    for (std::uintptr_t i = 0; i < stream_block * sizeof(T); i += line)
        __builtin_prefetch(reinterpret_cast<const void*>(address + i), 0, 2); // into the second-level cache
}

/// out[i] = element(in[i], i) for i < n; iterations are independent. If `streams`, out must begin at a cache line.
template <class In, class Out, class Element>
[[gnu::always_inline]] inline void transform(const In* in, Out* out, std::size_t n, bool streams,
                                             const Element& element) {
    std::size_t begin = 0;
    if (streams) {
        for (; begin + stream_block <= n; begin += stream_block) {
            alignas(64) Out block[stream_block];
            prefetch_block(in + begin);
            AMPSCOPE_INDEPENDENT
            for (std::size_t j = 0; j < stream_block; ++j) block[j] = element(in[begin + j], begin + j);
            stream(block, out + begin);
        }
    }
    AMPSCOPE_INDEPENDENT
    for (std::size_t i = begin; i < n; ++i) out[i] = element(in[i], i);
}

} // namespace amp::detail

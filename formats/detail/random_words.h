// The random words of consecutive elements, made for many groups at a time (see RandomKey).
#pragma once

#include <ampscope/formats/instruction_set.h>
#include <ampscope/formats/random.h>

#include <cstddef>
#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace amp::detail {

/// Number of elements whose random words are made at a time: few, so that loads and stores of the data go on meanwhile.
inline constexpr std::size_t block_size = 1024;

struct RandomWords {
    alignas(64) std::uint32_t raw[block_size + 128];  ///< includes room for whole steps of 32 groups
    alignas(64) std::uint32_t parts[block_size + 16]; ///< the words, if they are not of 32 bits
};

/// raw[4 j + w] = word w of group first + j.
struct PhiloxKernel {
    AMPSCOPE_KERNEL void run(const RandomKey* key, std::uint64_t first, std::size_t groups, std::uint32_t* raw) {
        const RandomKey k = *key;
        AMPSCOPE_INDEPENDENT
        for (std::size_t j = 0; j < groups; ++j) {
            const std::uint64_t group = first + j;
            std::uint32_t c0 = static_cast<std::uint32_t>(group), c1 = static_cast<std::uint32_t>(group >> 32);
            std::uint32_t c2 = k.step, c3 = k.stream;
            auto k0 = static_cast<std::uint32_t>(k.seed), k1 = static_cast<std::uint32_t>(k.seed >> 32);
#pragma GCC unroll 10
            for (int round = 0; round < 10; ++round) {
                const std::uint64_t p0 = std::uint64_t{0xD2511F53} * c0, p1 = std::uint64_t{0xCD9E8D57} * c2;
                c0 = static_cast<std::uint32_t>(p1 >> 32) ^ c1 ^ k0;
                c1 = static_cast<std::uint32_t>(p1);
                c2 = static_cast<std::uint32_t>(p0 >> 32) ^ c3 ^ k1;
                c3 = static_cast<std::uint32_t>(p0);
                k0 += 0x9E3779B9;
                k1 += 0xBB67AE85;
            }
            raw[4 * j] = c0;
            raw[4 * j + 1] = c1;
            raw[4 * j + 2] = c2;
            raw[4 * j + 3] = c3;
        }
    }
};

#if defined(__x86_64__)
/// The round keys, each in the 64 bits from where an operation broadcasts it: in memory, for nothing.
struct RoundKeys {
    long long of[10][2];

    explicit RoundKeys(std::uint64_t seed) {
        auto k0 = static_cast<std::uint32_t>(seed), k1 = static_cast<std::uint32_t>(seed >> 32);
        for (auto& round : of) {
            round[0] = k0;
            round[1] = k1;
            k0 += 0x9E3779B9;
            k1 += 0xBB67AE85;
        }
        asm volatile("" : : "r"(of) : "memory");
    }
};

/// The same for four groups in a register and three registers at a time. From plain loops g++ 12 makes the slow 64-bit
/// multiplication. Words are kept in the low halves of 64-bit lanes, the only part that mul_epu32 reads.
[[gnu::target(AMPSCOPE_TARGET_AVX2)]] inline void philox_avx2(const RandomKey& key, std::uint64_t first,
                                                              std::size_t groups, std::uint32_t* raw) {
    struct Lanes {
        __m256i c0, c1, c2, c3;
    };
    constexpr std::size_t at_once = 3;
    const __m256i m0 = _mm256_set1_epi64x(0xD2511F53), m1 = _mm256_set1_epi64x(0xCD9E8D57);
    const RoundKeys keys(key.seed);
    for (std::size_t j = 0; j < groups; j += 4 * at_once) {
        Lanes x[at_once];
        for (std::size_t i = 0; i < at_once; ++i) {
            const __m256i group = _mm256_add_epi64(_mm256_set1_epi64x(static_cast<long long>(first + j + 4 * i)),
                                                   _mm256_setr_epi64x(0, 1, 2, 3));
            x[i] = {group, _mm256_srli_epi64(group, 32), _mm256_set1_epi64x(key.step), _mm256_set1_epi64x(key.stream)};
        }
        for (const auto& round : keys.of) {
            const __m256i key0 = _mm256_set1_epi64x(round[0]), key1 = _mm256_set1_epi64x(round[1]);
            for (Lanes& l : x) {
                const __m256i p0 = _mm256_mul_epu32(m0, l.c0), p1 = _mm256_mul_epu32(m1, l.c2);
                l.c0 = _mm256_xor_si256(_mm256_srli_epi64(p1, 32), _mm256_xor_si256(l.c1, key0));
                l.c2 = _mm256_xor_si256(_mm256_srli_epi64(p0, 32), _mm256_xor_si256(l.c3, key1));
                l.c1 = p1;
                l.c3 = p0;
            }
        }
        for (std::size_t i = 0; i < at_once; ++i) {
            const __m256i w01 = _mm256_blend_epi32(x[i].c0, _mm256_slli_epi64(x[i].c1, 32), 0xaa);
            const __m256i w23 = _mm256_blend_epi32(x[i].c2, _mm256_slli_epi64(x[i].c3, 32), 0xaa);
            const __m256i even = _mm256_unpacklo_epi64(w01, w23), odd = _mm256_unpackhi_epi64(w01, w23);
            auto* const out = reinterpret_cast<__m256i*>(raw + 4 * j + 16 * i);
            _mm256_storeu_si256(out, _mm256_permute2x128_si256(even, odd, 0x20));
            _mm256_storeu_si256(out + 1, _mm256_permute2x128_si256(even, odd, 0x31));
        }
    }
}

/// For eight groups in a register and four registers at a time.
[[gnu::target(AMPSCOPE_TARGET_AVX512)]] inline void philox_avx512(const RandomKey& key, std::uint64_t first,
                                                                  std::size_t groups, std::uint32_t* raw) {
    struct Lanes {
        __m512i c0, c1, c2, c3;
    };
    const __m512i m0 = _mm512_set1_epi64(0xD2511F53), m1 = _mm512_set1_epi64(0xCD9E8D57);
    const __m512i pairs_low = _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11),
                  pairs_high = _mm512_setr_epi64(4, 12, 5, 13, 6, 14, 7, 15);
    const RoundKeys keys(key.seed);
    for (std::size_t j = 0; j < groups; j += 32) {
        Lanes x[4];
        for (int i = 0; i < 4; ++i) {
            const __m512i group = _mm512_add_epi64(_mm512_set1_epi64(static_cast<long long>(first + j) + 8 * i),
                                                   _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7));
            x[i] = {group, _mm512_srli_epi64(group, 32), _mm512_set1_epi64(key.step), _mm512_set1_epi64(key.stream)};
        }
        for (const auto& round : keys.of) {
            const __m512i key0 = _mm512_set1_epi64(round[0]), key1 = _mm512_set1_epi64(round[1]);
            for (Lanes& l : x) {
                constexpr int exclusive_or = 0x96;
                const __m512i p0 = _mm512_mul_epu32(m0, l.c0), p1 = _mm512_mul_epu32(m1, l.c2);
                l.c0 = _mm512_ternarylogic_epi64(_mm512_shuffle_epi32(p1, _MM_PERM_DDBB), l.c1, key0, exclusive_or);
                l.c2 = _mm512_ternarylogic_epi64(_mm512_shuffle_epi32(p0, _MM_PERM_DDBB), l.c3, key1, exclusive_or);
                l.c1 = p1;
                l.c3 = p0;
            }
        }
        for (int i = 0; i < 4; ++i) {
            constexpr __mmask16 high_halves = 0xaaaa;
            const __m512i w01 = _mm512_mask_shuffle_epi32(x[i].c0, high_halves, x[i].c1, _MM_PERM_CCAA);
            const __m512i w23 = _mm512_mask_shuffle_epi32(x[i].c2, high_halves, x[i].c3, _MM_PERM_CCAA);
            _mm512_storeu_si512(raw + 4 * j + 32 * static_cast<std::size_t>(i),
                                _mm512_permutex2var_epi64(w01, pairs_low, w23));
            _mm512_storeu_si512(raw + 4 * j + 32 * static_cast<std::size_t>(i) + 16,
                                _mm512_permutex2var_epi64(w01, pairs_high, w23));
        }
    }
}
#endif

/// The words of elements first ... first + n - 1 (n <= block_size), as RandomKey::word gives them.
inline const std::uint32_t* random_words(InstructionSet set, const RandomKey& key, int random_bits, std::uint64_t first,
                                         std::size_t n, RandomWords& words) {
    const std::size_t per_group = random_bits > 16 ? 4 : 8;
    const std::size_t offset = first % per_group;
    const std::size_t groups = (offset + n + per_group - 1) / per_group;
#if defined(__x86_64__)
    if (set == InstructionSet::avx512) philox_avx512(key, first / per_group, groups, words.raw);
    else if (set == InstructionSet::avx2) philox_avx2(key, first / per_group, groups, words.raw);
    else
#endif
        dispatch<PhiloxKernel>(set, &key, first / per_group, groups, words.raw);
    if (random_bits == 32) return words.raw + offset;
    const std::uint32_t mask = 0xffffffff >> (32 - random_bits);
    if (random_bits > 16)
        for (std::size_t i = 0; i < n; ++i) words.parts[i] = words.raw[offset + i] & mask;
    else
        for (std::size_t i = 0; i < n; ++i)
            words.parts[i] = words.raw[(offset + i) / 2] >> ((offset + i) % 2 * 16) & mask;
    return words.parts;
}

} // namespace amp::detail

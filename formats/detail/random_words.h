// The words of RandomKey for consecutive elements, many groups at a time.
#pragma once

#include <ampscope/formats/detail/instruction_set.h>
#include <ampscope/formats/random.h>

#include <cstddef>
#include <cstdint>

namespace amp::detail {

/// Elements that the loops treat at a time: their words and intermediate results stay in the first-level cache.
inline constexpr std::size_t block_size = 1024;

struct RandomWords {
    alignas(64) std::uint32_t raw[block_size + 16];
    alignas(64) std::uint32_t halves[block_size + 16];
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

/// The words of elements first ... first + n - 1 (n <= block_size), as RandomKey::word gives them.
inline const std::uint32_t* random_words(InstructionSet set, const RandomKey& key, int random_bits, std::uint64_t first,
                                         std::size_t n, RandomWords& words) {
    const std::size_t per_group = random_bits == 32 ? 4 : 8;
    const std::size_t offset = first % per_group;
    dispatch<PhiloxKernel>(set, &key, first / per_group, (offset + n + per_group - 1) / per_group, words.raw);
    if (random_bits == 32) return words.raw + offset;
    for (std::size_t i = 0; i < n; ++i) words.halves[i] = words.raw[(offset + i) / 2] >> ((offset + i) % 2 * 16) & 0xffff;
    return words.halves;
}

} // namespace amp::detail

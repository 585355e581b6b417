// Counter-based random words: a word is a function of (seed, stream, step, index) and of nothing else, so results do
// not depend on threads, vector width or the order in which elements are visited.
#pragma once

#include <array>
#include <cstdint>

namespace amp {

/// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
constexpr std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                                  std::array<std::uint32_t, 2> key) {
    for (int round = 0; round < 10; ++round) {
        const std::uint64_t p0 = std::uint64_t{0xD2511F53} * counter[0];
        const std::uint64_t p1 = std::uint64_t{0xCD9E8D57} * counter[2];
        counter = {static_cast<std::uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(p1),
                   static_cast<std::uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(p0)};
        key[0] += 0x9E3779B9; // the golden ratio
        key[1] += 0xBB67AE85; // sqrt(3) - 1
    }
    return counter;
}

/// The key of stochastic rounding; a random word depends on it and on the element's index. Every use has its own stream
/// and every step of training its own `step`: rounding that reuses the words of the step before is biased.
struct RandomKey {
    std::uint64_t seed = 0;
    std::uint32_t stream = 0;
    std::uint32_t step = 0;

    /// The four words shared by the elements of one group: counter = (group, step, stream), key = seed.
    [[nodiscard]] constexpr std::array<std::uint32_t, 4> words(std::uint64_t group) const {
        return philox4x32({static_cast<std::uint32_t>(group), static_cast<std::uint32_t>(group >> 32), step, stream},
                          {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
    }

    /// The word of element `index` of `random_bits` bits, 1 to 32. More than 16: the low bits of word index % 4 of
    /// group index / 4. Up to 16: the low bits of half index % 2 (low half first) of word index / 2 % 4 of group
    /// index / 8.
    [[nodiscard]] constexpr std::uint32_t word(std::uint64_t index, int random_bits = 32) const {
        const std::uint32_t mask = 0xffffffff >> (32 - random_bits);
        if (random_bits > 16) return words(index / 4)[index % 4] & mask;
        return words(index / 8)[index / 2 % 4] >> (index % 2 * 16) & mask;
    }

    constexpr bool operator==(const RandomKey&) const = default;
};

} // namespace amp

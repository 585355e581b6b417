// What recordings and the tests that read them share: numbers made from an index, and hashes of results.
#pragma once

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cstdint>
#include <string>
#include <vector>

namespace amp::test {

/// The last step of MurmurHash3: tests/data/references.py and hardware_inputs.py have it, too.
inline std::uint32_t mixed(std::uint32_t x) {
    x = (x ^ (x >> 16)) * 0x85ebca6bU;
    x = (x ^ (x >> 13)) * 0xc2b2ae35U;
    return x ^ (x >> 16);
}

/// FNV-1a of the bytes of values.
template <class T>
std::uint64_t fnv(const std::vector<T>& values) {
    std::uint64_t h = 0xcbf29ce484222325;
    for (const T value : values)
        for (const std::uint8_t byte : std::bit_cast<std::array<std::uint8_t, sizeof(T)>>(value))
            h = (h ^ byte) * 0x100000001b3;
    return h;
}

template <class T>
std::string hash_of(const std::vector<T>& values) {
    return fmt::format("{:016x}", fnv(values));
}

} // namespace amp::test

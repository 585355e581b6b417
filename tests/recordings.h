// What tests that compare with recordings of tests/data have in common: the lines of a recording, the pseudo-random
// words from which scripts and tests make the same inputs, and the hash that stands for results.
#pragma once

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace amp::test {

/// The lines of a file in tests/data, to be read word by word; those that begin with # are remarks.
inline std::vector<std::istringstream> recorded_lines(const std::string& file) {
    std::ifstream in(AMPSCOPE_TEST_DATA "/" + file);
    std::vector<std::istringstream> lines;
    for (std::string line; std::getline(in, line);)
        if (!line.empty() && line[0] != '#') lines.emplace_back(line);
    return lines;
}

/// A line of two words, a number of cases and a hash of their results.
struct RecordedHash {
    std::string first, second;
    std::uint32_t count = 0;
    std::uint64_t hash = 0;
};

inline std::vector<RecordedHash> recorded_hashes(const std::string& file) {
    std::vector<RecordedHash> lines;
    for (std::istringstream& words : recorded_lines(file)) {
        RecordedHash& line = lines.emplace_back();
        words >> line.first >> line.second >> line.count >> std::hex >> line.hash;
    }
    return lines;
}

/// mixed() of the scripts: a hash of a 32-bit word.
inline std::uint32_t mixed(std::uint32_t x) {
    x = (x ^ (x >> 16)) * 0x85ebca6bU;
    x = (x ^ (x >> 13)) * 0xc2b2ae35U;
    return x ^ (x >> 16);
}

/// FNV-1a, a step at a time: of bytes, or of words where a script takes them whole.
inline constexpr std::uint64_t fnv_begin = 0xcbf29ce484222325;
constexpr std::uint64_t fnv_step(std::uint64_t hash, std::uint64_t value) { return (hash ^ value) * 0x100000001b3; }

/// FNV-1a of the bytes of numbers.
template <class T>
std::uint64_t fnv(const std::vector<T>& values) {
    std::uint64_t h = fnv_begin;
    for (const T value : values)
        for (const std::uint8_t byte : std::bit_cast<std::array<std::uint8_t, sizeof(T)>>(value)) h = fnv_step(h, byte);
    return h;
}

/// The same as recordings have it.
template <class T>
std::string hash_of(const std::vector<T>& values) {
    return fmt::format("{:016x}", fnv(values));
}

} // namespace amp::test

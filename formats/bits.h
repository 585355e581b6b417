// Counting bits, in functions that devices run too.
//
// Devices run constexpr functions (--expt-relaxed-constexpr). What such a function takes from the host, nvcc 13.0 drops
// from device code without a word: calls of __builtin_clzl, __builtin_popcountl, memmove, memcmp and strlen, and
// addresses of constants. On an H200 std::countl_zero gave 64 for every number, std::copy_n did nothing, a
// std::string_view made of a literal ended the function, and a constant taken by reference lay at address 0. What
// follows is made of the two builtins that nvcc has. tests/layers keeps the others out, and tests/device_code looks for
// what is left.
#pragma once

#include <cstdint>

namespace amp {

/// Number of zeros above the first one; 64 for 0.
constexpr int leading_zeros(std::uint64_t x) { return x == 0 ? 64 : __builtin_clzll(x); }

/// Number of bits down from the first one; 0 for 0.
constexpr int bit_length(std::uint64_t x) { return 64 - leading_zeros(x); }

/// Number of zeros below the last one; 64 for 0.
constexpr int trailing_zeros(std::uint64_t x) { return x == 0 ? 64 : 63 - leading_zeros(x & (0 - x)); }

constexpr bool is_power_of_two(std::uint64_t x) { return x != 0 && (x & (x - 1)) == 0; }

/// The largest power of two up to x; 0 for 0.
constexpr std::uint64_t power_of_two_below(std::uint64_t x) {
    return x == 0 ? 0 : std::uint64_t{1} << (bit_length(x) - 1);
}

constexpr int count_of_ones(std::uint64_t x) { return __builtin_popcountll(x); }

} // namespace amp

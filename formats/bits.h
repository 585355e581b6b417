// Counting bits, in functions that devices run too.
//
// nvcc has no __builtin_clzl, __builtin_ctz, __builtin_popcountl or __builtin_memmove. std::countl_zero of 64 bits and
// its like call the former, std::copy the latter, and where --expt-relaxed-constexpr lets a device function call those,
// nvcc 13.0 drops the call without a word: on an H200 std::countl_zero gave 64 for every number, and std::copy_n
// did nothing. What follows is made of the two builtins that it has; tests/layers keeps the others out.
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

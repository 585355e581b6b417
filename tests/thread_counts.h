// The numbers of threads with which everything parallel is run: one, fewer and more than there are cores, primes,
// powers of two and their neighbours, far too many.
#pragma once

#include <array>

namespace amp::test {

inline constexpr std::array thread_counts = {1, 2, 3, 7, 10, 16, 17, 63, 64, 65, 128, 200, 1000};

} // namespace amp::test

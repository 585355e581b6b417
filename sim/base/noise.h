// Random numbers that are the same everywhere: initial weights, made-up data.
#pragma once

#include <cstdint>

namespace amp {

/// Roughly normal numbers of mean 0 and standard deviation 1: the sum of twelve uniform numbers, less 6. They need no
/// transcendental function, so they are the same everywhere.
double normal(std::uint64_t seed, std::uint32_t stream, std::uint64_t index);
/// Uniform numbers in (0, 1).
double uniform(std::uint64_t seed, std::uint32_t stream, std::uint64_t index);

} // namespace amp

// Random numbers that are the same everywhere: initial weights, made-up data.
#pragma once

#include <cstdint>

namespace amp {

/// Numbers that look normal, of mean 0 and deviation 1: the sum of twelve uniform ones, less 6. They need no
/// transcendental function, so they are the same everywhere.
double normal(std::uint64_t seed, std::uint32_t stream, std::uint64_t index);
/// In (0, 1).
double uniform(std::uint64_t seed, std::uint32_t stream, std::uint64_t index);

} // namespace amp

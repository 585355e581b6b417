// Work over fixed chunks on a chosen number of threads, in a known floating-point environment.
//
// Chunk boundaries depend on the chunk size alone, never on the number of threads, so whatever is combined chunk by
// chunk in order comes out the same on any machine.
#pragma once

#include <ampscope/formats/environment.h>

#include <cstddef>
#include <cstdint>
#include <functional>

namespace amp {

/// Number of threads that `requested` means: itself, or every core this process may use for 0.
int thread_count(int requested);

/// Calls body(begin, end) for [0, chunk), [chunk, 2 chunk) ... of [0, count) on `threads` threads (0: all cores), each
/// call in a FloatEnvironment. Rethrows the first exception of a body once every started chunk has finished.
void for_each_chunk(std::uint64_t count, std::uint64_t chunk, int threads,
                    const std::function<void(std::uint64_t begin, std::uint64_t end)>& body);

} // namespace amp

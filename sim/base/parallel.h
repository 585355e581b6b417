// Work over fixed chunks on a chosen number of threads, in a known floating-point environment.
//
// Chunk boundaries depend on the chunk size alone, never on the number of threads, so whatever is combined chunk by
// chunk in order comes out the same on any machine.
#pragma once

#include <ampscope/formats/environment.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace amp {

/// The most threads that a call may ask for, and that a process keeps.
inline constexpr int max_threads = 4096;

/// Number of threads that `requested` means: itself, or for 0 every core that this process could use when it first
/// asked (cores.h). Throws std::invalid_argument below 0 and above max_threads.
int thread_count(int requested);

/// The length of a part where `length` things are shared out into at most `parts` parts of whole units (the last may be
/// shorter): never less than a unit. A part of no thing counts as one.
constexpr std::int64_t share_of(std::int64_t length, std::int64_t parts, std::int64_t unit = 1) {
    const std::int64_t units = (length + unit - 1) / unit, some = std::max<std::int64_t>(1, parts);
    return std::max<std::int64_t>(1, (units + some - 1) / some) * unit;
}

/// Calls body(begin, end) for [0, chunk), [chunk, 2 chunk) ... of [0, count) on `threads` threads (0: all cores), no
/// more than there are chunks, each call in a FloatEnvironment. Chunks are begun in order. Once a body has thrown, no
/// other chunk is begun; when all that were have finished, the exception of the first of them (by position) is thrown
/// again: what one thread would have met. Throws std::invalid_argument for a chunk of 0.
///
/// Threads that the system refuses to make are done without: thread_shortage() tells.
void for_each_chunk(std::uint64_t count, std::uint64_t chunk, int threads,
                    const std::function<void(std::uint64_t begin, std::uint64_t end)>& body);

/// The most threads that one call has had since this was last asked, the caller among them: what tests ask of loops
/// that must share their work out.
int take_most_threads();

/// The system did not make all threads that a call wanted.
struct ThreadShortage {
    int wanted = 0, got = 0; ///< that worked on this call, the caller among them
    std::string reason;      ///< in the system's words
};

/// The worst of this process so far.
std::optional<ThreadShortage> thread_shortage();

} // namespace amp

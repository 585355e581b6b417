// Work over fixed chunks on a chosen number of threads, in a known floating-point environment.
//
// Chunk boundaries depend on the chunk size alone, never on the number of threads, so results that are combined chunk
// by chunk, in order, are the same on any machine.
#pragma once

#include <ampscope/formats/environment.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace amp {

/// The most threads that a call may ask for, and that a process makes.
inline constexpr int max_threads = 4096;

/// The number of threads that `requested` means: itself or, if 0, the number of cores that this process could use when
/// it first asked (cores.h). Throws std::invalid_argument below 0 and above max_threads.
int thread_count(int requested);

/// The length of a part when `length` is divided into at most `parts` parts, each a multiple of `unit` (the last may be
/// shorter). Never less than a unit, not even for a length of 0; `parts` below 1 counts as 1.
constexpr std::int64_t share_of(std::int64_t length, std::int64_t parts, std::int64_t unit = 1) {
    const std::int64_t units = (length + unit - 1) / unit, some = std::max<std::int64_t>(1, parts);
    return std::max<std::int64_t>(1, (units + some - 1) / some) * unit;
}

/// Calls body(begin, end) for [0, chunk), [chunk, 2 chunk) ... of [0, count) on `threads` threads (0: all cores), but
/// on no more than there are chunks, each call in a FloatEnvironment. Chunks are begun in order. Once a body has
/// thrown, no other chunk is begun; when all those begun have finished, the exception of the first (by position) is
/// thrown again, as a single thread would have met it. Throws std::invalid_argument for a chunk of 0.
///
/// If the system refuses to make threads, the call does without them; thread_shortage() reports it.
void for_each_chunk(std::uint64_t count, std::uint64_t chunk, int threads,
                    const std::function<void(std::uint64_t begin, std::uint64_t end)>& body);

/// Calls work(data) on up to `threads` threads at once, of which the calling one is one, and returns when all are done:
/// GOMP_parallel of OpenMP's libraries, for example, whose flags are 0.
using Team = void (*)(void (*work)(void*), void* data, unsigned threads, unsigned flags);

/// While it lives, other threads than this library's own help with the calls that its thread makes; null: its own do.
/// OpenMP's threads wait for work by spinning, for milliseconds, and would keep the cores from ours in a process that
/// computes with both.
class WithTeam {
  public:
    explicit WithTeam(Team other);
    ~WithTeam();
    WithTeam(const WithTeam&) = delete;
    WithTeam& operator=(const WithTeam&) = delete;

  private:
    Team before_;
};

/// The most threads that one call has used since this function was last called, the calling thread included. For tests
/// of loops that must use several threads.
int take_most_threads();

/// A call got fewer threads than it wanted, because the system refused to make them.
struct ThreadShortage {
    int wanted = 0, got = 0; ///< threads that were to work, and worked, on one call, the calling one included
    std::string reason;      ///< the system's message, or that a process's limit was reached
};

/// The worst shortage of this process so far.
std::optional<ThreadShortage> thread_shortage();

} // namespace amp

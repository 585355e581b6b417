#include <ampscope/sim/parallel.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include <oneapi/tbb/blocked_range.h>
#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/info.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/partitioner.h>
#include <oneapi/tbb/task_arena.h>

namespace amp {

namespace {

int cores() { return std::max(1, oneapi::tbb::info::default_concurrency()); }

/// The arena of so many threads: kept, since its threads stay awake for a while and the next call finds them.
oneapi::tbb::task_arena& arena_of(int threads) {
    static std::mutex mutex;
    static std::map<int, std::unique_ptr<oneapi::tbb::task_arena>> arenas;
    const std::lock_guard lock(mutex);
    auto& arena = arenas[threads];
    if (!arena) arena = std::make_unique<oneapi::tbb::task_arena>(threads);
    return *arena;
}

} // namespace

int thread_count(int requested) { return requested > 0 ? requested : cores(); }

void for_each_chunk(std::uint64_t count, std::uint64_t chunk, int threads,
                    const std::function<void(std::uint64_t, std::uint64_t)>& body) {
    const std::uint64_t chunks = count / chunk + std::uint64_t{count % chunk != 0};
    const auto run = [&](std::uint64_t i) {
        const FloatEnvironment environment;
        body(i * chunk, std::min(count, (i + 1) * chunk));
    };
    const int workers = thread_count(threads);
    if (workers == 1 || chunks <= 1) {
        for (std::uint64_t i = 0; i < chunks; ++i) run(i);
        return;
    }
    // More threads than cores is what the caller asked for; without this oneTBB warns and caps them.
    std::optional<oneapi::tbb::global_control> limit;
    if (workers > cores())
        limit.emplace(oneapi::tbb::global_control::max_allowed_parallelism, static_cast<std::size_t>(workers));
    // Isolated: a thread that waits for its chunks takes no chunk of an outer call meanwhile.
    arena_of(workers).execute([&] {
        oneapi::tbb::this_task_arena::isolate([&] {
            oneapi::tbb::parallel_for(oneapi::tbb::blocked_range<std::uint64_t>(0, chunks, 1), [&](const auto& range) {
                for (std::uint64_t i = range.begin(); i != range.end(); ++i) run(i);
            });
        });
    });
}

} // namespace amp

// One pass over a tensor's bytes: in pieces of whole blocks, on any number of threads, in bounded memory.
#pragma once

#include <ampscope/sim/base/parallel.h>
#include <ampscope/sim/base/progress.h>
#include <ampscope/sim/io/tensor_file.h>

#include <algorithm>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

namespace amp {

/// Partial results, one per block, that arrive from any thread in any order and are taken in the order of the blocks.
template <class Part>
class BlockParts {
  public:
    void add(std::uint64_t block, Part part) {
        const std::lock_guard lock(mutex_);
        parts_.emplace_back(block, std::move(part));
    }
    /// Calls take(part) for the parts that arrived since the last call; these must be all up to some block.
    template <class Take>
    void take(const Take& take) {
        std::ranges::sort(parts_, {}, [](const auto& p) { return p.first; });
        for (auto& [block, part] : parts_) take(part);
        parts_.clear();
    }

  private:
    std::mutex mutex_;
    std::vector<std::pair<std::uint64_t, Part>> parts_;
};

namespace detail {

/// Calls body(worker, block_index, bytes) for every block of `block_bytes` of the tensor (the last may be shorter), on
/// `threads` threads. Workers are made by make(); each is used by one thread at a time. Returns the workers: their
/// results must not depend on which of them got which block. `settle` is called from time to time, when all blocks up
/// to some block are done, and at the end: there, what was kept for each block can be added up, so that memory does not
/// grow with the tensor.
template <class Worker, class Make, class Body>
std::vector<std::unique_ptr<Worker>>
for_each_block(const TensorFile& file, std::size_t tensor, std::uint64_t block_bytes, int threads,
               const Progress& progress, const Make& make, const Body& body, const std::function<void()>& settle = {}) {
    struct Slot {
        std::unique_ptr<Worker> worker;
        std::vector<std::byte> buffer;
    };
    constexpr std::uint64_t piece = 1 << 18; // long enough to hide a system call, short enough for the cache
    constexpr std::uint64_t settled = 4096;  // chunks, 1 GiB or more
    const std::uint64_t bytes = file.tensors()[tensor].bytes;
    const std::uint64_t chunk = std::max<std::uint64_t>(1, piece / block_bytes) * block_bytes;
    const std::unique_ptr<ByteStream> stream = file.random_access(tensor) ? nullptr : file.stream(tensor);
    std::mutex mutex;
    std::vector<Slot> idle;

    const auto run = [&](std::uint64_t begin, std::uint64_t end) {
        Slot slot;
        {
            const std::lock_guard lock(mutex);
            if (!idle.empty()) {
                slot = std::move(idle.back());
                idle.pop_back();
            }
        }
        if (!slot.worker) slot = {make(), std::vector<std::byte>(std::min(chunk, bytes))};
        const std::span<std::byte> data = std::span(slot.buffer).first(end - begin);
        if (stream) stream->read(data);
        else file.read_at(tensor, begin, data);
        for (std::uint64_t at = 0; at < data.size(); at += block_bytes)
            body(*slot.worker, (begin + at) / block_bytes,
                 std::span<const std::byte>(data).subspan(at, std::min<std::uint64_t>(block_bytes, data.size() - at)));
        const std::lock_guard lock(mutex);
        idle.push_back(std::move(slot));
        if (progress) progress(end - begin);
    };
    for (std::uint64_t first = 0; first < bytes; first += settled * chunk) {
        for_each_chunk(std::min(bytes - first, settled * chunk), chunk, stream ? 1 : threads, // a stream has one reader
                       [&](std::uint64_t begin, std::uint64_t end) { run(first + begin, first + end); });
        if (settle) settle();
    }

    std::vector<std::unique_ptr<Worker>> workers;
    for (Slot& slot : idle) workers.push_back(std::move(slot.worker));
    return workers;
}

} // namespace detail

} // namespace amp

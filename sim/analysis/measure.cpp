#include <ampscope/sim/analysis/measure.h>

#include <ampscope/sim/parallel.h>

#include <algorithm>
#include <mutex>

namespace amp {

namespace {

constexpr std::uint64_t blocks_per_chunk = 4; // 1 MiB of FP32: long enough to hide a system call, short enough for the cache

/// A counter and a buffer, lent to one thread at a time.
struct Worker {
    MagnitudeCounter counter;
    std::vector<std::byte> buffer;
};

class Pool {
  public:
    explicit Pool(DType dtype) : dtype_(dtype) {}

    std::unique_ptr<Worker> take() {
        const std::lock_guard lock(mutex_);
        if (idle_.empty()) return std::make_unique<Worker>(Worker{MagnitudeCounter(dtype_), {}});
        std::unique_ptr<Worker> worker = std::move(idle_.back());
        idle_.pop_back();
        return worker;
    }
    void give_back(std::unique_ptr<Worker> worker, std::uint64_t bytes, const Progress& progress) {
        const std::lock_guard lock(mutex_);
        idle_.push_back(std::move(worker));
        if (progress) progress(bytes);
    }
    [[nodiscard]] MagnitudeStatistics statistics() const {
        MagnitudeCounter total(dtype_);
        for (const auto& worker : idle_) total.merge(worker->counter);
        return total.statistics();
    }

  private:
    DType dtype_;
    std::mutex mutex_;
    std::vector<std::unique_ptr<Worker>> idle_;
};

} // namespace

MagnitudeStatistics measure(const TensorFile& file, std::size_t tensor, int threads, const Progress& progress) {
    const TensorEntry& entry = file.tensors()[tensor];
    const DTypeInfo& type = info(entry.dtype);
    const std::uint64_t block = sum_block / static_cast<std::uint64_t>(type.numbers()) * static_cast<std::uint64_t>(type.bits) / 8;
    const std::uint64_t chunk = block * blocks_per_chunk;
    Pool pool(entry.dtype);
    const std::unique_ptr<ByteStream> stream = file.random_access(tensor) ? nullptr : file.stream(tensor);
    // A compressed member's size is a mere claim, so there the sums grow with what is read.
    std::vector<MagnitudeSums> sums(stream ? 0 : entry.bytes / block + 1);

    const auto count_chunk = [&](std::uint64_t begin, std::uint64_t end) {
        std::unique_ptr<Worker> worker = pool.take();
        worker->buffer.resize(chunk);
        const std::span<std::byte> bytes = std::span(worker->buffer).first(end - begin);
        if (stream) {
            stream->read(bytes);
            sums.resize((end - 1) / block + 1);
        } else {
            file.read_at(tensor, begin, bytes);
        }
        for (std::uint64_t at = 0; at < bytes.size(); at += block)
            sums[(begin + at) / block] = worker->counter.add(bytes.subspan(at, std::min(block, bytes.size() - at)));
        pool.give_back(std::move(worker), end - begin, progress);
    };
    for_each_chunk(entry.bytes, chunk, stream ? 1 : threads, count_chunk); // a stream has one reader

    MagnitudeStatistics result = pool.statistics();
    for (const MagnitudeSums& s : sums) result.sums += s;
    return result;
}

} // namespace amp

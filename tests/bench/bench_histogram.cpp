// The exact histogram (all formats and scales at once) as a ratio to reading the same bytes without using them, in
// memory and from a file in the page cache.
//
//     cmake -B build/bench -DAMPSCOPE_BENCHMARKS=ON -DCMAKE_BUILD_TYPE=Release
//     cmake --build build/bench --target bench_histogram && build/bench/bin/bench_histogram
//
// The array is twice the last-level cache, at least 1 GiB. Counts are first compared with one-by-one counting; if they
// differ, an error is printed and no figure. The file is made in TMPDIR.
#include "bench.h"

#include <ampscope/sim/analysis/measure.h>

#include <fmt/format.h>

#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <string>
#include <unistd.h>
#include <vector>

using namespace amp;
using bench::add;

namespace {

constexpr std::size_t period = 4 << 20; // bytes after which the data repeat
constexpr std::size_t piece = 1 << 20;
using Work = std::function<void(int threads)>;

struct Data {
    const char* name;
    DType dtype;
    float (*make)(std::mt19937& random); // makes FP32 numbers
};

float normal(std::mt19937& random) { return std::normal_distribution<float>()(random); }
/// Magnitudes over 36 binades, as gradients have.
float wide(std::mt19937& random) {
    return normal(random) * std::exp2(-36.0F * static_cast<float>(random()) / 4294967296.0F);
}
float relu(std::mt19937& random) { return random() % 10 < 7 ? 0.0F : wide(random); }
float bf16(std::mt19937& random) {
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(wide(random)) & 0xffff0000);
}
float constant(std::mt19937&) { return 0.015625F; }
float subnormal(std::mt19937& random) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(random() & 0x807fffff));
}

constexpr Data cases[] = {{"fp32/wide", DType::f32, wide},          {"fp32/normal", DType::f32, normal},
                          {"fp32/relu", DType::f32, relu},          {"fp32/bf16_values", DType::f32, bf16},
                          {"fp32/constant", DType::f32, constant},  {"fp32/subnormal", DType::f32, subnormal},
                          {"bf16/wide", DType::bf16, wide},         {"bf16/relu", DType::bf16, relu},
                          {"bf16/constant", DType::bf16, constant}, {"f16/wide", DType::f16, wide},
                          {"i8/random", DType::i8, subnormal}};

std::vector<std::byte>& memory() {
    static std::vector<std::byte> bytes([] {
        const std::size_t cache = static_cast<std::size_t>(std::max(sysconf(_SC_LEVEL3_CACHE_SIZE), 0L));
        return std::max(std::size_t{1} << 30, 2 * cache) / period * period;
    }());
    return bytes;
}

void fill(const Data& data) {
    std::mt19937 random(1);
    std::vector<std::byte>& bytes = memory();
    for (std::size_t i = 0; i < period;) {
        auto word = std::bit_cast<std::uint32_t>(data.make(random));
        const std::size_t width = data.dtype == DType::bf16 || data.dtype == DType::f16 ? 2 : 4;
        if (data.dtype == DType::f16) // gradients under a loss scale; a bfloat16 is the upper half of a float
            word = encode(format("fp16"), std::bit_cast<float>(word) * 0x1p12F) << 16;
        std::memcpy(bytes.data() + i, reinterpret_cast<const std::byte*>(&word) + 4 - width, width);
        i += width;
    }
    for (std::size_t i = period; i < bytes.size(); i += period) std::memcpy(bytes.data() + i, bytes.data(), period);
}

struct XorKernel {
    AMPSCOPE_KERNEL void run(const std::uint64_t* words, std::size_t n, std::uint64_t* result) {
        std::uint64_t sum = 0;
        for (std::size_t i = 0; i < n; ++i) sum ^= words[i];
        *result = sum;
    }
};

void read_memory(int threads) {
    const std::span<const std::byte> bytes = memory();
    for_each_chunk(bytes.size(), piece, threads, [&](std::uint64_t begin, std::uint64_t end) {
        std::uint64_t result = 0;
        dispatch<XorKernel>(best_instruction_set(), reinterpret_cast<const std::uint64_t*>(bytes.data() + begin),
                            (end - begin) / sizeof(std::uint64_t), &result);
        benchmark::DoNotOptimize(result);
    });
}

/// All counts of the array: a counter for each thread, merged.
MagnitudeStatistics count_memory(DType dtype, int threads) {
    const std::span<const std::byte> bytes = memory();
    const std::size_t block = sum_block * static_cast<std::size_t>(info(dtype).bits) / 8;
    const std::size_t share = bytes.size() / static_cast<std::size_t>(threads) / period * period;
    std::mutex mutex;
    MagnitudeCounter total(dtype);
    for_each_chunk(bytes.size(), share, threads, [&](std::uint64_t begin, std::uint64_t end) {
        MagnitudeCounter counter(dtype);
        for (; begin < end; begin += block)
            counter.add(bytes.subspan(begin, std::min<std::uint64_t>(block, end - begin)));
        const std::lock_guard lock(mutex);
        total.merge(counter);
    });
    return total.statistics();
}

/// The counts of the array by one-by-one counting: those of a period, times the number of periods.
MagnitudeHistogram expected(DType dtype) {
    MagnitudeHistogram h;
    const int width = info(dtype).bits;
    const std::span<const std::byte> bytes = std::span(memory()).first(period);
    for (std::size_t i = 0; i < period * 8 / static_cast<std::size_t>(width); ++i)
        h.add(unpack_number(dtype, packed_number(bytes, i, width)), memory().size() / period);
    return h;
}

/// Wall-clock time, and processor time of all threads together.
struct Times {
    double wall = 1e9, cpu = 1e9;

    void keep_best(const Times& other) {
        wall = std::min(wall, other.wall);
        cpu = std::min(cpu, other.cpu);
    }
};

Times timed(const Work& work, int threads) {
    const auto start = std::chrono::steady_clock::now();
    const std::clock_t cpu = std::clock();
    work(threads);
    return {std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(),
            static_cast<double>(std::clock() - cpu) / CLOCKS_PER_SEC};
}

/// Times work and, alternating with it, reading; reports the ratio of the best times. On a machine with other users
/// cpu_ratio says more.
void compare(benchmark::State& state, int threads, std::uint64_t numbers, const Work& read, const Work& work) {
    Times best_read, best_work;
    for ([[maybe_unused]] auto _ : state) {
        best_read.keep_best(timed(read, threads));
        const Times t = timed(work, threads);
        best_work.keep_best(t);
        state.SetIterationTime(t.wall);
    }
    state.counters["ratio"] = best_read.wall / best_work.wall;
    state.counters["cpu_ratio"] = best_read.cpu / best_work.cpu;
    state.counters["Gnumber/s"] = static_cast<double>(numbers) / best_work.wall * 1e-9;
    state.counters["read_GB/s"] = static_cast<double>(memory().size()) / best_read.wall * 1e-9;
}

constexpr const char* differs = "differs from one-by-one counting: not timed";

void run_memory(benchmark::State& state, const Data& data, int threads) {
    fill(data);
    if (count_memory(data.dtype, threads).histogram != expected(data.dtype)) return state.SkipWithError(differs);
    const std::uint64_t numbers = memory().size() * 8 / static_cast<std::uint64_t>(info(data.dtype).bits);
    compare(state, threads, numbers, read_memory,
            [&](int t) { benchmark::DoNotOptimize(count_memory(data.dtype, t)); });
}

void run_file(benchmark::State& state, const Data& data, int threads) {
    fill(data);
    const std::filesystem::path path =
        std::filesystem::temp_directory_path() / fmt::format("bench_histogram_{}.bin", getpid());
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(memory().data()), static_cast<std::streamsize>(memory().size()));
    const auto answer = [&](int t) { return measure(*open_tensor_file(path, {.dtype = data.dtype}), 0, t); };
    const Work read = [&](int t) {
        const int fd = open(path.c_str(), O_RDONLY);
        for_each_chunk(memory().size(), memory().size() / static_cast<std::size_t>(t), t,
                       [&](std::uint64_t begin, std::uint64_t end) {
                           std::vector<std::byte> buffer(piece);
                           for (; begin < end; begin += piece) {
                               if (pread(fd, buffer.data(), std::min<std::uint64_t>(piece, end - begin),
                                         static_cast<off_t>(begin)) <= 0)
                                   std::abort();
                           }
                       });
        close(fd);
    };
    if (answer(threads).histogram != expected(data.dtype)) state.SkipWithError(differs);
    else
        compare(state, threads, memory().size() * 8 / static_cast<std::uint64_t>(info(data.dtype).bits), read,
                [&](int t) { benchmark::DoNotOptimize(answer(t)); });
    std::filesystem::remove(path);
}

} // namespace

int main(int argc, char** argv) {
    for (const Data& data : cases)
        for (const int threads : {1, 2})
            add(fmt::format("memory/{}/threads:{}", data.name, threads),
                [=](benchmark::State& s) { run_memory(s, data, threads); });
    for (const Data& data : {cases[0], cases[6]})
        for (const int threads : {1, 2})
            add(fmt::format("file/{}/threads:{}", data.name, threads),
                [=](benchmark::State& s) { run_file(s, data, threads); });
    bench::run(argc, argv, "time of reading the same bytes, divided by the time of counting them");
}

// What recipes do to a tensor (amp-histogram --recipe) as a ratio to reading the same file without using it.
//
//     cmake -B build/bench -DAMPSCOPE_BENCHMARKS=ON -DCMAKE_BUILD_TYPE=Release
//     cmake --build build/bench --target bench_recipes && build/bench/bin/bench_recipes
//
// The file, of FP32 numbers over 36 binades in rows of 4096, is four times the last-level cache, at least 256 MiB, and
// made in TMPDIR. Counts of its first rows are first compared with casts one by one; if they differ, an error is
// printed and no figure. Reading and casting take turns, nine times each, and the best of each counts: "ratio" of the
// time that passes, "cpu ratio" of the processor's time, which depends less on what else the machine does.
#include "bench.h"

#include <ampscope/sim/analysis/scaled_cast.h>
#include <ampscope/sim/base/parallel.h>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <ctime>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <unistd.h>
#include <vector>

using namespace amp;
using bench::add;

namespace {

constexpr std::size_t columns = 4096, period = 256; // rows after which the data repeat
constexpr std::size_t piece = 1 << 20;

std::vector<float> numbers() {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    std::vector<float> values(columns * period);
    for (float& x : values) x = normal(random) * std::exp2(-36.0F * static_cast<float>(random()) / 4294967296.0F);
    return values;
}

/// A file of whole periods, and its beginning.
class File {
  public:
    File()
        : values(numbers()),
          path_(std::filesystem::temp_directory_path() / fmt::format("bench_recipes_{}.bin", getpid())) {
        const std::size_t cache = static_cast<std::size_t>(std::max(sysconf(_SC_LEVEL3_CACHE_SIZE), 0L));
        const std::size_t bytes = std::max(std::size_t{1} << 28, 4 * cache), size = values.size() * sizeof(float);
        periods = (bytes + size - 1) / size;
        std::ofstream out(path_, std::ios::binary);
        for (std::size_t i = 0; i < periods; ++i)
            out.write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(size));
    }
    ~File() { std::filesystem::remove(path_); }
    File(const File&) = delete;
    File& operator=(const File&) = delete;

    [[nodiscard]] std::unique_ptr<TensorFile> open_it() const {
        return open_tensor_file(path_, {.dtype = DType::f32, .shape = {periods * period, columns}});
    }
    void read(int threads) const {
        const int fd = open(path_.c_str(), O_RDONLY);
        const std::uint64_t bytes = periods * values.size() * sizeof(float);
        for_each_chunk(bytes, bytes / static_cast<std::uint64_t>(threads), threads,
                       [&](std::uint64_t begin, std::uint64_t end) {
                           std::vector<std::byte> buffer(piece);
                           for (; begin < end; begin += piece)
                               if (pread(fd, buffer.data(), std::min<std::uint64_t>(piece, end - begin),
                                         static_cast<off_t>(begin)) <= 0)
                                   std::abort();
                       });
        close(fd);
    }

    std::vector<float> values;
    std::size_t periods = 0;

  private:
    std::filesystem::path path_;
};

struct Case {
    const char* name;
    BlockScaling scaling;
};

const std::array cases = {Case{"current, a scale a tensor", {format("e4m3"), 0, 0, ScaleRule::te}},
                          Case{"ocp-mxfp8", {format("e4m3"), 1, 32, ScaleRule::mx_floor}},
                          Case{"te-mxfp8", {format("e4m3"), 1, 32, ScaleRule::mx_te}},
                          Case{"te-mxfp8 in columns", {format("e4m3"), 32, 1, ScaleRule::mx_te}},
                          Case{"te-block", {format("e4m3"), 1, 128, ScaleRule::te_pow2}},
                          Case{"te-block of weights", {format("e4m3"), 128, 128, ScaleRule::te_pow2}},
                          Case{"torchao-rowwise", {format("e4m3"), 1, 0, ScaleRule::torchao_pow2}},
                          Case{"te-nvfp4", {format("e2m1"), 1, 16, ScaleRule::nvfp4}}};

/// Underflows of one period by casts one by one, times the number of periods.
std::uint64_t expected(const File& file, const BlockScaling& scaling) {
    const std::vector<float> amax = block_amax(scaling, file.values, period, columns);
    float most = 0;
    for (const float x : amax) most = std::max(most, x);
    const BlockGrid grid = scaling.grid(period, columns);
    std::uint64_t underflow = 0;
    for (std::size_t i = 0; i < file.values.size(); ++i) {
        const float tensor_scale = scaling.rule == ScaleRule::nvfp4 ? nvfp4_tensor_scale(most) : 1;
        const BlockScale scale =
            block_scale(scaling.rule, scaling.element,
                        amax[static_cast<std::size_t>(grid.of(static_cast<std::int64_t>(i)))], tensor_scale);
        underflow +=
            file.values[i] != 0 && (scale.decode == 0 || quantize_scaled(scaling.element, file.values[i], scale) == 0);
    }
    return underflow * file.periods;
}

/// The best times of several measurements, in seconds.
struct Best {
    double wall = 1e9, cpu = 1e9; ///< the time that passes, and that of all threads of this process

    double measure(const std::function<void()>& work) {
        const std::clock_t before = std::clock();
        const double t = bench::seconds(work);
        cpu = std::min(cpu, static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC);
        wall = std::min(wall, t);
        return t;
    }
};

void run_case(benchmark::State& state, const File& file, const Case& what, int threads) {
    const auto opened = file.open_it();
    const auto answer = [&] {
        return measure_scaled(*opened, 0, {.scaling = what.scaling}, {.threads = threads}).statistics.underflow;
    };
    if (answer() != expected(file, what.scaling))
        return state.SkipWithError("differs from casts one by one: not timed");
    Best read, work;
    for ([[maybe_unused]] auto _ : state) {
        read.measure([&] { file.read(threads); });
        state.SetIterationTime(work.measure([&] { benchmark::DoNotOptimize(answer()); }));
    }
    state.counters["ratio"] = read.wall / work.wall;
    state.counters["cpu ratio"] = read.cpu / work.cpu;
    state.counters["Gnumber/s"] = static_cast<double>(file.periods * file.values.size()) / work.wall * 1e-9;
}

} // namespace

int main(int argc, char** argv) {
    const File file;
    for (const Case& what : cases)
        for (const int threads : {1, 2})
            add(fmt::format("{}/threads:{}", what.name, threads),
                [&file, &what, threads](benchmark::State& s) { run_case(s, file, what, threads); }, 9);
    bench::run(argc, argv, "time of reading the same file, divided by the time of casting its numbers");
}

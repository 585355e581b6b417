// The matrix product as a ratio to Eigen's and to the peak of the core's multiply-adds, in the same process.
//
//     cmake -B build/bench -DAMPSCOPE_BENCHMARKS=ON -DCMAKE_BUILD_TYPE=Release
//     cmake --build build/bench --target bench_matmul && build/bench/bin/bench_matmul
//
// Every product is first compared with the plain loop (large ones by a sample of elements); if one differs, an error is
// printed and no figure.
#include "bench.h"

#include <ampscope/sim/backend/cpu/detail/matmul.h>
#include <ampscope/sim/base/parallel.h>

#include <Eigen/Core>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>
#include <vector>

using namespace amp;
using bench::seconds;

namespace {

/// Multiply-adds on registers only, in enough chains to hide their latency.
struct PeakKernel {
    static constexpr int chains = 16, lanes = 16;
    AMPSCOPE_KERNEL void run(std::int64_t n, float* result) {
        float sum[chains][lanes]{};
        const float factor = result[0], x = result[1];
        for (std::int64_t l = 0; l < n; ++l) {
#pragma GCC unroll 16
            for (int i = 0; i < chains; ++i)
                for (int j = 0; j < lanes; ++j) sum[i][j] = __builtin_fmaf(factor, sum[i][j], x);
        }
        for (int i = 0; i < chains; ++i)
            for (int j = 0; j < lanes; ++j) result[j] += sum[i][j];
    }
};

/// Does as many multiply-adds as `count`, on `threads` cores at once.
void multiply_in_registers(std::int64_t count, int threads) {
    const std::int64_t each = std::max<std::int64_t>(1, count / (PeakKernel::chains * PeakKernel::lanes * threads));
    for_each_chunk(static_cast<std::uint64_t>(threads), 1, threads, [each](std::uint64_t, std::uint64_t) {
        float data[2 * PeakKernel::lanes];
        std::fill(std::begin(data), std::end(data), 0.5F);
        dispatch<PeakKernel>(best_instruction_set(), each, &data[0]);
        benchmark::DoNotOptimize(data);
    });
}

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

bool agrees(const Matrix& a, const Matrix& b, const Matrix& c) {
    std::mt19937 random(2);
    const auto n = static_cast<std::uint32_t>(a.rows());
    for (int sample = 0; sample < 4096; ++sample) {
        const Eigen::Index i = random() % n, j = random() % n;
        float sum = 0;
        for (Eigen::Index l = 0; l < a.cols(); ++l) sum = std::fma(a(i, l), b(l, j), sum);
        if (std::bit_cast<std::uint32_t>(sum) != std::bit_cast<std::uint32_t>(c(i, j))) return false;
    }
    return true;
}

void run(benchmark::State& state, Eigen::Index n, int threads) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    Matrix a(n, n), b(n, n), c(n, n), d(n, n);
    for (Matrix* x : {&a, &b})
        for (Eigen::Index i = 0; i < n * n; ++i) x->data()[i] = normal(random);
    const auto ours = [&] { cpu::matmul({a.data(), n, 1}, {b.data(), n, 1}, c.data(), n, n, n, threads); };
    // Eigen's threads need OpenMP; with two threads each computes half of the rows.
    const auto eigen = [&] {
        const auto share = static_cast<std::uint64_t>((n + threads - 1) / threads);
        for_each_chunk(static_cast<std::uint64_t>(n), share, threads, [&](std::uint64_t begin, std::uint64_t end) {
            const auto i = static_cast<Eigen::Index>(begin), count = static_cast<Eigen::Index>(end - begin);
            d.middleRows(i, count).noalias() = a.middleRows(i, count) * b;
        });
    };
    ours();
    if (!agrees(a, b, c)) return state.SkipWithError("differs from the plain loop: not timed");
    const auto repeats = std::max<Eigen::Index>(1, (Eigen::Index{1} << 28) / (n * n * n));
    double best = 1e9, best_eigen = 1e9, best_limit = 1e9;
    const auto timed = [&](const auto& work) {
        return seconds([&] {
                   for (Eigen::Index i = 0; i < repeats; ++i) work();
               }) /
               static_cast<double>(repeats);
    };
    for ([[maybe_unused]] auto _ : state) {
        // For as long as the product: over milliseconds, what others do on the machine makes the peak itself lower.
        const double limit = seconds([=] { multiply_in_registers(repeats * n * n * n, threads); });
        best_limit = std::min(best_limit, limit / static_cast<double>(repeats));
        best_eigen = std::min(best_eigen, timed(eigen));
        const double t = timed(ours);
        best = std::min(best, t);
        state.SetIterationTime(t);
    }
    benchmark::DoNotOptimize(d.data());
    state.counters["GFLOP/s"] = 2 * static_cast<double>(n * n * n) / best * 1e-9;
    state.counters["of_Eigen"] = best_eigen / best;
    state.counters["of_peak"] = best_limit / best;
}

} // namespace

int main(int argc, char** argv) {
    for (const int threads : {1, 2})
        for (const Eigen::Index n : {64, 256, 512, 1024, 2048})
            bench::add(fmt::format("matmul/{}/threads:{}", n, threads),
                       [=](benchmark::State& s) { run(s, n, threads); });
    bench::run(argc, argv, "of_Eigen: to Eigen's product; of_peak: to multiply-adds in registers");
}

// Matrix products with every accumulator, in multiply-adds a second, beside the FP32 product in the same process.
//
//     cmake -B build/bench -DAMPSCOPE_BENCHMARKS=ON -DCMAKE_BUILD_TYPE=Release
//     cmake --build build/bench --target bench_accumulate && build/bench/bin/bench_accumulate
//
// A sample of every product is first compared with formats/dot.h; if one differs, an error is printed and no figure.
#include "bench.h"

#include <ampscope/formats/batch.h>
#include <ampscope/formats/dot.h>
#include <ampscope/sim/backend/cpu/detail/accumulate.h>

#include <fmt/format.h>

#include <cmath>
#include <random>
#include <vector>

using namespace amp;
using bench::seconds;

namespace {

struct Operands {
    FormatSpec format;
    std::int64_t n;
    std::vector<float> a, b;

    Operands(const FormatSpec& f, std::int64_t size, float unit)
        : format(f), n(size), a(static_cast<std::size_t>(size * size)), b(a.size()) {
        std::mt19937 random(1);
        std::normal_distribution<float> normal;
        for (std::vector<float>* x : {&a, &b}) {
            for (float& v : *x) v = normal(random) * unit;
            quantize(format, *x, *x);
        }
    }
    void multiply(const Accumulator& acc, std::vector<float>& out, int threads) const {
        cpu::accumulate(acc, format, format, {a.data(), n, 1}, {b.data(), n, 1}, out.data(), n, n, n, threads);
    }
};

bool agrees(const Accumulator& acc, const Operands& x, const std::vector<float>& out) {
    std::mt19937 random(2);
    for (int sample = 0; sample < 500; ++sample) {
        const auto i = static_cast<std::int64_t>(random()) % x.n, j = static_cast<std::int64_t>(random()) % x.n;
        std::vector<float> row, column;
        for (std::int64_t l = 0; l < x.n; ++l) {
            row.push_back(x.a[static_cast<std::size_t>(i * x.n + l)]);
            column.push_back(x.b[static_cast<std::size_t>(l * x.n + j)]);
        }
        if (dot(acc, x.format, x.format, row, column) != out[static_cast<std::size_t>(i * x.n + j)]) return false;
    }
    return true;
}

void run(benchmark::State& state, const std::string& name, std::int64_t n, int threads, float unit) {
    const Accumulator acc = accumulator(name), fp32 = accumulator("fp32");
    const std::string_view first = acc.operands.substr(0, acc.operands.find(' '));
    const Operands x(format(first.empty() ? "fp16" : first), n, unit);
    std::vector<float> out(x.a.size());
    x.multiply(acc, out, threads);
    if (!agrees(acc, x, out)) return state.SkipWithError("differs from dot.h: not timed");
    double best = 1e9, best_fp32 = 1e9;
    for ([[maybe_unused]] auto _ : state) {
        const double t = seconds([&] { x.multiply(acc, out, threads); });
        best = std::min(best, t);
        best_fp32 = std::min(best_fp32, seconds([&] { x.multiply(fp32, out, threads); }));
        state.SetIterationTime(t);
    }
    const double products = std::pow(static_cast<double>(n), 3);
    state.counters["GMAC/s"] = products / best * 1e-9;
    state.counters["FP32_GMAC/s"] = products / best_fp32 * 1e-9;
    state.counters["of_FP32"] = best_fp32 / best;
}

} // namespace

int main(int argc, char** argv) {
    for (const int threads : {1, 2})
        for (const std::int64_t n : {512, 1024})
            for (const char* name :
                 {"volta-fp16", "ampere-fp16", "ampere-bf16", "ampere-tf32", "ada-e4m3", "hopper-fp16", "hopper-bf16",
                  "hopper-tf32", "hopper-fp16-acc16", "hopper-wgmma-fp8", "hopper-wgmma-fp8-promote128",
                  "hopper-mma-fp8", "blackwell-fp8", "blackwell-mxf4nvf4", "exact", "pairwise", "kahan", "bf16",
                  "fp16"})
                bench::add(fmt::format("{}/{}/threads:{}", name, n, threads),
                           [=](benchmark::State& s) { run(s, name, n, threads, 1); });
    // Numbers as small as gradients can be: out of reach of the kernel in float.
    for (const char* name : {"hopper-bf16", "hopper-tf32", "ampere-tf32"})
        bench::add(fmt::format("{}/1024/tiny", name), [=](benchmark::State& s) { run(s, name, 1024, 1, 0x1p-50F); });
    bench::run(argc, argv, "GMAC/s: 10^9 multiply-adds a second; of_FP32: to the FP32 product");
}

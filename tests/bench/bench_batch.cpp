// Conversions and arithmetic over arrays, as ratios to a copy loop that moves the same bytes in the same process.
//
//     cmake -B build/bench -DAMPSCOPE_BENCHMARKS=ON -DCMAKE_BUILD_TYPE=Release
//     cmake --build build/bench --target bench_batch && build/bench/bin/bench_batch
//
// Arrays larger than the last-level cache for one thread and two, and arrays in the second-level cache. Every result is
// first compared with the plain code's; if one differs, an error is printed and no figure.
#include "bench.h"

#include <ampscope/formats/arithmetic.h>
#include <ampscope/formats/codec.h>
#include <ampscope/sim/base/batch.h>
#include <ampscope/sim/base/parallel.h>

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <unistd.h>
#include <vector>

using namespace amp;
using bench::add;

namespace {

constexpr std::size_t cached = 128 << 10; // elements: 512 KiB in and 512 KiB out

/// Elements of an array as large as the last-level cache, at least 512 MiB; in and out together are twice as large.
std::size_t large() {
    const long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
    return std::max<std::size_t>(std::size_t{512} << 20, static_cast<std::size_t>(std::max(cache, 0L))) / sizeof(float);
}

struct Arrays {
    std::vector<float> in = std::vector<float>(large()), out = std::vector<float>(large());
};
Arrays& arrays() {
    static Arrays both;
    return both;
}

/// Exponents spread evenly from 8 binades below the format's smallest value to 4 beyond its largest, random fractions.
void fill(const FormatSpec& f, std::span<float> values, bool in_format = false) {
    const int low = std::max(in_format ? f.min_exponent() / 2 : f.min_subnormal_exponent() - 8, -149);
    const int high = std::min(in_format ? f.max_exponent() / 2 : f.max_exponent() + 4, 127);
    const auto span = static_cast<std::uint32_t>(high - low + 1);
    const std::size_t period = std::min<std::size_t>(values.size(), 1 << 20);
    std::mt19937 random(1);
    for (std::size_t i = 0; i < period; ++i) {
        const auto word = static_cast<std::uint32_t>(random());
        const float x = std::ldexp(1.0F + static_cast<float>(word & 0xffff) / 65536.0F,
                                   low + static_cast<int>((word >> 17) % span));
        values[i] = in_format ? quantize(f, x) : (word >> 16 & 1) != 0 ? -x : x;
    }
    for (std::size_t i = period; i < values.size(); i += period)
        std::copy_n(values.begin(), std::min(period, values.size() - i),
                    values.begin() + static_cast<std::ptrdiff_t>(i));
}

/// The copy that everything is compared with: a plain loop that moves the same number of bytes in and out.
template <class In, class Out>
struct CopyKernel {
    AMPSCOPE_KERNEL void run(const In* in, Out* out, std::size_t n) {
        AMPSCOPE_INDEPENDENT
        for (std::size_t i = 0; i < n; ++i) out[i] = static_cast<Out>(in[i] ^ In{1});
    }
};

template <class T>
using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, T>;

using Work = std::function<void(int threads)>;

double seconds(const Work& work, int threads, int repeats) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < repeats; ++i) work(threads);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / repeats;
}

/// Times work and, alternating with it, a copy of n elements of In to Out; reports the ratio of the best times.
template <class In, class Out>
void compare(benchmark::State& state, std::span<const In> in, std::span<Out> out, int threads, const Work& work) {
    const std::size_t n = in.size();
    const auto* from = reinterpret_cast<const Bits<In>*>(in.data());
    auto* to = reinterpret_cast<Bits<Out>*>(out.data());
    const Work copy = [&](int t) {
        for_each_chunk(n, t == 1 ? n : 1 << 18, t, [&](std::uint64_t begin, std::uint64_t end) {
            dispatch<CopyKernel<Bits<In>, Bits<Out>>>(best_instruction_set(), from + begin, to + begin, end - begin);
        });
    };
    const int repeats = n > (1 << 20) ? 1 : 400;
    double best_copy = 1e9, best_work = 1e9;
    for ([[maybe_unused]] auto _ : state) {
        best_copy = std::min(best_copy, seconds(copy, threads, repeats));
        const double t = seconds(work, threads, repeats);
        best_work = std::min(best_work, t);
        state.SetIterationTime(t);
    }
    state.counters["ratio"] = best_copy / best_work;
    state.counters["Gelem/s"] = static_cast<double>(n) / best_work * 1e-9;
    state.counters["copy_Gelem/s"] = static_cast<double>(n) / best_copy * 1e-9;
}

/// Whether the first and the last thousand results are those of the plain code.
template <class Out, class Plain>
bool agrees(std::span<const Out> out, const Plain& plain) {
    const auto same = [&](std::size_t i) {
        const Out want = plain(i);
        return std::memcmp(&out[i], &want, sizeof want) == 0;
    };
    const std::size_t n = out.size();
    for (std::size_t i = 0; i < std::min<std::size_t>(n, 1 << 18); ++i)
        if (!same(i)) return false;
    for (std::size_t i = n - 1000; i < n; ++i)
        if (!same(i)) return false;
    return true;
}

constexpr const char* differs = "differs from the plain code: not timed";

struct Case {
    FormatSpec format;
    Rounding rounding = Rounding::nearest_even;
    int threads = 1;
    std::size_t n = cached;
};

std::uint32_t word_of(const BatchOptions& o, std::size_t i) {
    return o.policy.rounding == Rounding::stochastic ? o.key.word(o.first_index + i, o.policy.random_bits) : 0;
}

void run_quantize(benchmark::State& state, const Case& c) {
    const std::span in = std::span(arrays().in).first(c.n), out = std::span(arrays().out).first(c.n);
    const BatchOptions o{{.rounding = c.rounding}, {.seed = 1}};
    fill(c.format, in);
    const Work work = [&](int t) { t == 1 ? quantize(c.format, in, out, o) : quantize(c.format, in, out, o, t); };
    work(c.threads);
    if (!agrees<float>(out, [&](std::size_t i) { return quantize(c.format, in[i], o.policy, word_of(o, i)); }))
        return state.SkipWithError(differs);
    compare<float, float>(state, in, out, c.threads, work);
}

template <class Code>
void run_encode(benchmark::State& state, const Case& c) {
    const std::span in = std::span(arrays().in).first(c.n);
    const std::span<Code> out(reinterpret_cast<Code*>(arrays().out.data()), c.n);
    fill(c.format, in);
    const Work work = [&](int t) { t == 1 ? encode(c.format, in, out) : encode(c.format, in, out, {}, t); };
    work(c.threads);
    if (!agrees<Code>(out, [&](std::size_t i) { return static_cast<Code>(encode(c.format, in[i])); }))
        return state.SkipWithError(differs);
    compare<float, Code>(state, in, out, c.threads, work);
}

template <class Code>
void run_decode(benchmark::State& state, const Case& c) {
    const std::span<Code> in(reinterpret_cast<Code*>(arrays().in.data()), c.n);
    const std::span out = std::span(arrays().out).first(c.n);
    std::mt19937 random(1);
    for (std::size_t i = 0; i < c.n; ++i) in[i] = i < (1 << 20) ? static_cast<Code>(random()) : in[i - (1 << 20)];
    const Work work = [&](int t) {
        t == 1 ? decode(c.format, in, out) : decode(c.format, in, out, NanRule::canonical, t);
    };
    work(c.threads);
    if (!agrees<float>(out, [&](std::size_t i) { return decode(c.format, in[i]); }))
        return state.SkipWithError(differs);
    compare<Code, float>(state, in, out, c.threads, work);
}

float apply_plain(Operation operation, const FormatSpec& f, float a, float b, float c) {
    Arithmetic unit{f};
    const std::uint32_t x = encode(f, a), y = encode(f, b), z = encode(f, c);
    switch (operation) {
    case Operation::add: return decode(f, unit.add(x, y));
    case Operation::sub: return decode(f, unit.sub(x, y));
    case Operation::mul: return decode(f, unit.mul(x, y));
    case Operation::div: return decode(f, unit.div(x, y));
    case Operation::sqrt: return decode(f, unit.sqrt(x));
    case Operation::fma: return decode(f, unit.fma(x, y, z));
    }
    return 0;
}

void run_apply(benchmark::State& state, Operation operation, const FormatSpec& f) {
    constexpr std::size_t n = 16 << 10; // four arrays in the second-level cache
    const std::span a = std::span(arrays().in).first(n), out = std::span(arrays().out).first(n);
    fill(f, a, true);
    const std::vector<float> b(a.rbegin(), a.rend()), c(a.begin(), a.end());
    const Work work = [&](int) { apply(operation, f, a, b, c, out); };
    work(1);
    if (!agrees<float>(out, [&](std::size_t i) { return apply_plain(operation, f, a[i], b[i], c[i]); }))
        return state.SkipWithError(differs);
    compare<float, float>(state, a, out, 1, work);
}

template <class Code>
void add_codes(const FormatSpec& f, int threads) {
    const Case c{f, Rounding::nearest_even, threads, large()};
    add(fmt::format("memory/encode/{}/threads:{}", f.name, threads),
        [c](benchmark::State& s) { run_encode<Code>(s, c); });
    add(fmt::format("memory/decode/{}/threads:{}", f.name, threads),
        [c](benchmark::State& s) { run_decode<Code>(s, c); });
}

void add_all() {
    constexpr const char* operation_names[] = {"add", "sub", "mul", "div", "sqrt", "fma"};
    const auto add_quantize = [&](const char* where, const Case& c) {
        add(fmt::format("{}/quantize/{}/{}/threads:{}", where, c.format.name, name_of(c.rounding), c.threads),
            [c](benchmark::State& s) { run_quantize(s, c); });
    };
    for (const char* name : {"fp32", "tf32", "fp16", "bf16", "e4m3", "e5m2"}) {
        const FormatSpec f = format(name);
        add_quantize("cache", {f});
        for (const int threads : {1, 2}) add_quantize("memory", {f, Rounding::nearest_even, threads, large()});
    }
    for (const char* name : {"fp16", "bf16", "e4m3"})
        for (int r = 1; r < 7; ++r)
            for (const int threads : {1, 2})
                if (threads == 2 || name[0] == 'f' || r == 6)
                    add_quantize("memory", {format(name), static_cast<Rounding>(r), threads, large()});
    for (const int threads : {1, 2}) {
        add_codes<std::uint16_t>(format("fp16"), threads);
        add_codes<std::uint16_t>(format("bf16"), threads);
        add_codes<std::uint8_t>(format("e4m3"), threads);
        add_codes<std::uint8_t>(format("e5m2"), threads);
    }
    for (const char* name : {"fp16", "bf16", "e4m3", "e5m2"})
        for (int i = 0; i < 6; ++i)
            add(fmt::format("cache/{}/{}", operation_names[i], name),
                [i, f = format(name)](benchmark::State& s) { run_apply(s, static_cast<Operation>(i), f); });
}

} // namespace

int main(int argc, char** argv) {
    add_all();
    bench::run(argc, argv, "time of a copy loop over as many bytes, divided by the time of the call");
}

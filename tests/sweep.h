// The harness of proofs: runs a check for every input of a range, on all cores, and reports counts and first failures.
//
//     prove("fp16 encode nearest_even", std::uint64_t{1} << 32, [](std::uint64_t i, Tally& tally) {
//         tally.expect(got(i), want(i), [&] { return hex(i); });
//     });
//
// AMPSCOPE_SHARD=K/N (1 <= K <= N) in the environment checks inputs K-1, K-1+N, K-1+2N ... only: a part of a long sweep
// for one of several machines or days. An odd N gives a fair sample, since all low bits occur.
#pragma once

#include "sanitized.h"

#include <ampscope/formats/policy.h>
#include <ampscope/sim/base/parallel.h>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <type_traits>
#include <unistd.h>
#include <vector>

namespace amp::test {

/// Cases, mismatches and the first few failures of one part of a proof.
struct Tally {
    static constexpr std::size_t shown = 5;
    std::uint64_t cases = 0;
    std::uint64_t mismatches = 0;
    std::vector<std::string> failures{};

    /// Counts one case; `describe` gives the inputs in words, and is called for the first failures only.
    template <class Value, class Describe>
    void expect(const Value& got, const Value& want, const Describe& describe) {
        ++cases;
        if (same(got, want)) return;
        ++mismatches;
        if (failures.size() < shown)
            failures.push_back(fmt::format("{}: got {}, want {}", describe(), show(got), show(want)));
    }

    void merge(const Tally& other) {
        cases += other.cases;
        mismatches += other.mismatches;
        for (const std::string& f : other.failures)
            if (failures.size() < shown) failures.push_back(f);
    }

    /// Floats are equal if their bits are: a NaN equals itself, -0 is not +0.
    template <class Value>
    static bool same(const Value& a, const Value& b) {
        if constexpr (std::is_same_v<Value, float>)
            return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
        else return a == b;
    }

    template <class Value>
    static std::string show(const Value& v) {
        if constexpr (std::is_same_v<Value, float>)
            return fmt::format("{:#010x} ({:a})", std::bit_cast<std::uint32_t>(v), v);
        else if constexpr (std::is_same_v<Value, double>)
            return fmt::format("{:#018x} ({:a})", std::bit_cast<std::uint64_t>(v), v);
        else if constexpr (std::is_integral_v<Value>) return fmt::format("{:#x}", v);
        else return fmt::format("{:#x} flags {:#x}", v.code, v.flags);
    }
};

struct Shard {
    std::uint64_t first = 0, count = 1;
};

inline Shard shard() {
    const char* text = std::getenv("AMPSCOPE_SHARD");
    if (text == nullptr) return {};
    unsigned long long k = 0, n = 0;
    if (std::sscanf(text, "%llu/%llu", &k, &n) != 2 || k < 1 || k > n) {
        fmt::print(stderr, "AMPSCOPE_SHARD={}: expected K/N with 1 <= K <= N, such as 1/7\n", text);
        std::exit(2);
    }
    return {k - 1, n};
}

/// Prints a proof's line and its failures; fails the running test if there are any.
inline void report(const std::string& what, const Tally& tally, double seconds = 0) {
    for (const std::string& f : tally.failures) fmt::print("  {}\n", f);
    fmt::print("proof: {}: {} cases, {} mismatches\n", what, tally.cases, tally.mismatches);
    if (seconds >= 10) fmt::print("  {:.0f} s\n", seconds);
    std::fflush(stdout);
    CHECK_MESSAGE(tally.mismatches == 0, what);
    CHECK_MESSAGE(tally.cases > 0, what);
}

/// Of so many inputs of a long proof one is checked under sanitizers, which look for another kind of fault in what the
/// build with g++ has proved. No proof has this period.
inline constexpr std::uint64_t inputs_a_sample = under_sanitizers ? 17 : 1;

/// Calls check(i, tally) for every i in [0, count), or in this shard or sample of it, and reports.
template <class Check>
void prove(std::string what, std::uint64_t count, const Check& check, Shard part = {}) {
    if (part.count == 1 && count >= 5000) part.count = inputs_a_sample;
    const std::uint64_t mine = (count - part.first + part.count - 1) / part.count;
    if (part.count > 1) what += fmt::format(" (inputs {} + {} i)", part.first, part.count);
    const bool terminal = isatty(STDERR_FILENO) != 0;
    const auto start = std::chrono::steady_clock::now();
    std::atomic<std::uint64_t> done = 0;
    std::mutex mutex;
    Tally total;
    for_each_chunk(mine, std::clamp<std::uint64_t>(mine / 256, 64, 1 << 20), 0,
                   [&](std::uint64_t begin, std::uint64_t end) {
                       Tally tally;
                       for (std::uint64_t i = begin; i < end; ++i) check(part.first + i * part.count, tally);
                       const std::uint64_t finished = done += end - begin;
                       const std::lock_guard lock(mutex);
                       total.merge(tally);
                       if (terminal && mine >> 24 != 0)
                           fmt::print(stderr, "\r{}: {:.1f} %\033[K\r", what,
                                      100.0 * static_cast<double>(finished) / static_cast<double>(mine));
                   });
    report(what, total, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
}

} // namespace amp::test

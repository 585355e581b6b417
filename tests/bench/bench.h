// Shared by the benchmarks: registration, and a main that says what was measured on what.
#pragma once

#include <ampscope/formats/instruction_set.h>

#include <benchmark/benchmark.h>

#include <chrono>
#include <functional>
#include <string>

namespace amp::bench {

/// Registers a benchmark of some timed runs; the body measures the time itself.
template <class Body>
void add(const std::string& name, const Body& body, int runs = 5) {
    benchmark::RegisterBenchmark(name.c_str(), body)->UseManualTime()->Iterations(runs)->Unit(benchmark::kMillisecond);
}

inline double seconds(const std::function<void()>& work) {
    const auto start = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Runs the registered benchmarks. `ratio` explains the figures called "ratio".
inline void run(int argc, char** argv, const char* ratio) {
    benchmark::Initialize(&argc, argv);
#if defined(__clang__)
    benchmark::AddCustomContext("compiler", "clang " __clang_version__);
#else
    benchmark::AddCustomContext("compiler", "g++ " __VERSION__);
#endif
    constexpr const char* sets[] = {"baseline", "avx2", "avx512"};
    benchmark::AddCustomContext("instruction set", sets[static_cast<int>(best_instruction_set())]);
    benchmark::AddCustomContext("ratio", ratio);
    benchmark::RunSpecifiedBenchmarks();
}

} // namespace amp::bench

// One kernel compiled for several instruction sets, chosen by an argument, so that a test can run each of them.
//
// A kernel is a struct with a static function `run` marked AMPSCOPE_KERNEL: plain loops, no intrinsics. The choice is
// an ordinary switch and not the compiler's function clones, which need a resolver at load time (ThreadSanitizer
// crashes in it), cannot sit on templates with clang, and leave a test no way to force a level.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string_view>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#define AMPSCOPE_KERNEL [[gnu::always_inline]] static inline

// Placed before a loop whose iterations are independent even where its arrays are identical.
#if defined(__clang__)
#define AMPSCOPE_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define AMPSCOPE_INDEPENDENT _Pragma("GCC ivdep")
#endif

namespace amp {

enum class InstructionSet : std::uint8_t { baseline, avx2, avx512 };

#if defined(__x86_64__)
#define AMPSCOPE_TARGET_AVX2 "avx2,fma,bmi,bmi2,f16c"
#if defined(__clang__)
#define AMPSCOPE_TARGET_AVX512 "avx512f,avx512bw,avx512dq,avx512vl," AMPSCOPE_TARGET_AVX2
#else // g++ uses 256-bit vectors unless told otherwise
#define AMPSCOPE_TARGET_AVX512 "avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512," AMPSCOPE_TARGET_AVX2
#endif

/// Whether it has the conversions between FP32 and FP16, for which clang 14's __builtin_cpu_supports has no name.
inline bool supports_f16c() {
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

/// The best instruction set that the processor and the operating system support and that the environment variable
/// AMPSCOPE_INSTRUCTION_SET (baseline, avx2) allows. Results are the same with each.
inline InstructionSet best_instruction_set() {
    static const InstructionSet best = [] {
        const char* const allowed = std::getenv("AMPSCOPE_INSTRUCTION_SET");
        const std::string_view limit = allowed != nullptr ? allowed : "";
        __builtin_cpu_init();
        const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                          __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") && supports_f16c();
        const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                            __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
        if (!avx2 || limit == "baseline") return InstructionSet::baseline;
        return avx512 && limit != "avx2" ? InstructionSet::avx512 : InstructionSet::avx2;
    }();
    return best;
}

template <class Kernel, class... Args>
[[gnu::noinline, gnu::target(AMPSCOPE_TARGET_AVX512)]] void run_avx512(Args... args) {
    Kernel::run(args...);
}
template <class Kernel, class... Args>
[[gnu::noinline, gnu::target(AMPSCOPE_TARGET_AVX2)]] void run_avx2(Args... args) {
    Kernel::run(args...);
}
#else
inline InstructionSet best_instruction_set() { return InstructionSet::baseline; }
#endif

/// Whether kernels that dispatch() calls with the best instruction set have fused multiply-adds in one instruction.
inline bool has_fma() {
#if defined(__x86_64__)
    return best_instruction_set() != InstructionSet::baseline;
#else
    return true;
#endif
}

template <class Kernel, class... Args>
[[gnu::noinline]] void run_baseline(Args... args) {
    Kernel::run(args...);
}

/// Calls Kernel::run(args...), compiled for `set`. Never inlined, so it may rely on a FloatEnvironment around it.
template <class Kernel, class... Args>
void dispatch(InstructionSet set, Args... args) {
    switch (set) {
#if defined(__x86_64__)
    case InstructionSet::avx512: return run_avx512<Kernel>(args...);
    case InstructionSet::avx2: return run_avx2<Kernel>(args...);
#endif
    default: return run_baseline<Kernel>(args...);
    }
}

} // namespace amp

// AMPSCOPE_CLONES before a plain function: compiled for several instruction sets, the best one picked when the program
// loads. g++ and clang take different names, and clang's dispatch is right for the older spelling only. ThreadSanitizer
// runs before the resolvers may, so there the function is compiled once.
#pragma once

#if defined(__SANITIZE_THREAD__)
#define AMPSCOPE_NO_CLONES
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define AMPSCOPE_NO_CLONES
#endif
#endif

#if !defined(__x86_64__) || defined(AMPSCOPE_NO_CLONES)
#define AMPSCOPE_CLONES
#elif defined(__clang__)
#define AMPSCOPE_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define AMPSCOPE_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#endif

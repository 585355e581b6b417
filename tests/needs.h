// For tests that need something outside the project: recordings, headers, instructions of the processor. Without it a
// test is skipped, which ctest and tools/check count, and says how to get it; it never just passes.
//
// A test case that needs something is put into a suite of its own,
//     TEST_CASE("the real recordings" * doctest::test_suite("real_recordings"))
// for which CMakeLists.txt makes a separate test of ctest: test_recording.real_recordings.
#pragma once

#include <cstdio>
#include <string>

namespace amp::test {

inline constexpr int skipped_code = 77; ///< the exit code of a program that skipped something and failed nowhere
inline bool skipped_something = false;

/// Prints what is missing and how to get it. The test case then returns.
inline void skip(const std::string& what) {
    std::printf("skipped: %s\n", what.c_str());
    skipped_something = true;
}

} // namespace amp::test

// What a test needs that is no part of the project: recordings, headers, instructions of the processor. Without it a
// test is skipped, which ctest and tools/check count, and says how to get it; it never just passes.
//
// A test case that needs something has a suite of its own,
//     TEST_CASE("the real recordings" * doctest::test_suite("real_recordings"))
// which CMakeLists.txt makes a test of ctest beside the rest of the file: test_recording.real_recordings.
#pragma once

#include <cstdio>
#include <string>

namespace amp::test {

inline constexpr int skipped_code = 77; ///< the exit code of a program that skipped something and failed nowhere
inline bool skipped_something = false;

/// Says what is not here and how to get it. The test case then returns.
inline void skip(const std::string& what) {
    std::printf("skipped: %s\n", what.c_str());
    skipped_something = true;
}

} // namespace amp::test

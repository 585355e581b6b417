// Whether AddressSanitizer watches what is compiled, as it does in the build with sanitizers.
#pragma once

#include <cstddef>

namespace amp::test {

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define AMPSCOPE_TEST_SANITIZED true
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define AMPSCOPE_TEST_SANITIZED true
#endif
#ifndef AMPSCOPE_TEST_SANITIZED
#define AMPSCOPE_TEST_SANITIZED false
#endif
inline constexpr bool under_sanitizers = AMPSCOPE_TEST_SANITIZED;

/// Whether the case of this number runs: of a long list each does, and under sanitizers, which look for another kind of
/// fault in what the tests without them prove of every case, one in seven.
constexpr bool is_due(std::size_t number) { return !under_sanitizers || number % 7 == 0; }

} // namespace amp::test

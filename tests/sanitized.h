// Whether AddressSanitizer watches what is compiled, as it does in the build with sanitizers.
#pragma once

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

} // namespace amp::test

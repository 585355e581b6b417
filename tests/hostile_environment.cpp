// A library that, when loaded into a process (LD_PRELOAD), leaves it with a changed floating-point environment, as some
// libraries do; AMPSCOPE_HOSTILE names the environment.
#include <cfenv>
#include <cstdlib>
#include <string_view>

#include <xmmintrin.h>

namespace {

[[gnu::constructor]] void set_environment() {
    const char* const name = std::getenv("AMPSCOPE_HOSTILE");
    const std::string_view wanted = name == nullptr ? "" : name;
    if (wanted == "ftz") _mm_setcsr(_mm_getcsr() | 0x8000);
    if (wanted == "daz") _mm_setcsr(_mm_getcsr() | 0x40);
    if (wanted == "down") std::fesetround(FE_DOWNWARD);
    if (wanted == "up") std::fesetround(FE_UPWARD);
    if (wanted == "zero") std::fesetround(FE_TOWARDZERO);
}

} // namespace

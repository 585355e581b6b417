#include <ampscope/formats/environment.h>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace amp {

namespace {

// The control word that holds rounding mode and flush bits. fenv.h can restore the flush bits but not clear them
// portably.
#if defined(__x86_64__)
// The upper half is the x87 unit's control word: strtod and printf round as it says. It rarely changes, and costs more.
constexpr std::uint64_t x87_default = 0x37f; // exceptions masked, 64 bits, nearest-even
std::uint64_t control() {
    std::uint16_t x87 = 0;
    asm volatile("fnstcw %0" : "=m"(x87));
    return std::uint64_t{x87} << 32 | _mm_getcsr();
}
void set_control(std::uint64_t word, std::uint64_t before) {
    _mm_setcsr(static_cast<unsigned>(word));
    const auto x87 = static_cast<std::uint16_t>(word >> 32);
    if (x87 != before >> 32) asm volatile("fldcw %0" : : "m"(x87));
}
/// All exceptions masked, no FTZ, no DAZ; bits 13 and 14 hold the direction.
std::uint64_t control_word(HostRounding rounding) {
    return x87_default << 32 | 0x1f80 | static_cast<std::uint64_t>(rounding) << 13;
}
#elif defined(__aarch64__)
std::uint64_t control() {
    std::uint64_t word = 0;
    asm volatile("mrs %0, fpcr" : "=r"(word));
    return word;
}
void set_control(std::uint64_t word, std::uint64_t) { asm volatile("msr fpcr, %0" : : "r"(word) : "memory"); }
/// No traps, no flushing; bits 22 and 23 hold the direction, in another order than the enum's.
std::uint64_t control_word(HostRounding rounding) {
    constexpr std::uint64_t direction[] = {0, 2, 1, 3};
    return direction[static_cast<int>(rounding)] << 22;
}
#else
#error "FloatEnvironment: add this processor's floating-point control word"
#endif

} // namespace

FloatEnvironment::FloatEnvironment(HostRounding rounding) : saved_(control()), set_(control_word(rounding)) {
    set_control(set_, saved_);
}
FloatEnvironment::~FloatEnvironment() { set_control(saved_, set_); }

} // namespace amp

// Floating-point environments that a process may have been left with.
#pragma once

#include <array>
#include <cfenv>
#include <string_view>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace amp::test {

inline constexpr std::array<std::string_view, 6> hostile_names = {"nearest", "down", "up", "toward zero", "ftz", "daz"};

/// Sets one of them while the object lives.
class Hostile {
  public:
    explicit Hostile(std::string_view name) {
        std::fegetenv(&before_);
        if (name == "down") std::fesetround(FE_DOWNWARD);
        if (name == "up") std::fesetround(FE_UPWARD);
        if (name == "toward zero") std::fesetround(FE_TOWARDZERO);
#if defined(__x86_64__)
        if (name == "ftz") _mm_setcsr(_mm_getcsr() | 0x8000);
        if (name == "daz") _mm_setcsr(_mm_getcsr() | 0x40);
#endif
        direction_ = std::fegetround();
        control_ = control();
    }
    ~Hostile() { std::fesetenv(&before_); }
    Hostile(const Hostile&) = delete;
    Hostile& operator=(const Hostile&) = delete;

    /// Whether the environment is still the one that was set.
    [[nodiscard]] bool holds() const { return std::fegetround() == direction_ && control() == control_; }

  private:
    static unsigned control() {
#if defined(__x86_64__)
        return _mm_getcsr() & ~0x3fU; // without the exception flags
#else
        return 0;
#endif
    }

    std::fenv_t before_{};
    int direction_ = 0;
    unsigned control_ = 0;
};

} // namespace amp::test

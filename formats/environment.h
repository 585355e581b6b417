// The floating-point control word: sets rounding direction and flush bits for a while, then puts the old ones back.
#pragma once

#include <cstdint>

namespace amp {

/// The directions in which the processor's own arithmetic can round.
enum class HostRounding : std::uint8_t { nearest_even, down, up, toward_zero };

/// Sets the rounding direction, gradual underflow and masked exceptions for this thread while the object lives;
/// restores the caller's environment afterwards. Put arithmetic that relies on it into a function that is not inlined
/// where the object is: compilers do not know that arithmetic depends on the control word.
class FloatEnvironment {
  public:
    explicit FloatEnvironment(HostRounding rounding = HostRounding::nearest_even);
    ~FloatEnvironment();
    FloatEnvironment(const FloatEnvironment&) = delete;
    FloatEnvironment& operator=(const FloatEnvironment&) = delete;

  private:
    std::uint64_t saved_, set_;
};

} // namespace amp

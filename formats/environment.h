// The floating-point control word: rounding direction and flush bits, set for a while and put back.
#pragma once

#include <cstdint>

namespace amp {

/// What the processor's own arithmetic can round to.
enum class HostRounding : std::uint8_t { nearest_even, down, up, toward_zero };

/// That rounding and gradual underflow, exceptions masked, for the life of the object and for this thread; the caller's
/// environment afterwards. Arithmetic that relies on it belongs in a function that is not inlined beside the object:
/// compilers do not know that a control word is an operand.
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

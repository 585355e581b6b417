// The norms that a training loop logs each step, at the speed of memory; histograms take several times as long.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace amp {

/// Of all elements added: sums in FP64, whose squares of FP32 neither overflow nor vanish.
class Norms {
  public:
    void add(std::span<const float> x);
    /// sqrt(sum of x^2); NaN or infinity where an element is.
    [[nodiscard]] double two() const;
    /// The largest magnitude; NaN or infinity where an element is.
    [[nodiscard]] float largest() const;

  private:
    static constexpr std::size_t lanes = 32;
    std::array<double, lanes> squares_{};
    std::array<std::int32_t, lanes> largest_{}; ///< as integers magnitudes are in order, infinity and NaN above
};

} // namespace amp

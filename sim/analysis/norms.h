// The norms that a training loop logs each step, at the speed of memory; histograms take several times as long.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace amp {

/// Norms of all elements added. Sums are in FP64, where squares of FP32 values neither overflow nor underflow.
class Norms {
  public:
    void add(std::span<const float> x);
    /// sqrt(sum of x^2); NaN or infinity if an element is.
    [[nodiscard]] double two() const;
    /// The largest magnitude; NaN or infinity if an element is.
    [[nodiscard]] float largest() const;

  private:
    static constexpr std::size_t lanes = 32;
    std::array<double, lanes> squares_{};
    std::array<std::int32_t, lanes> largest_{}; ///< magnitude bits, ordered as magnitudes; infinity and NaN are above
};

} // namespace amp

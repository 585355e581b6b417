// What roundings did to numbers, counted.
#pragma once

#include <ampscope/sim/backend/backend.h>

namespace amp {

/// Counts what rounding n numbers to `after` did.
RoundingCounts count_rounding(const float* before, const float* after, std::int64_t n);
RoundingCounts count_rounding(const double* before, const float* after, std::int64_t n);

/// Adds what a finished cast with scales did to scalings() and roundings(), if these are counted. `scales` and `amax`
/// have an element for each block. Counts on that many threads (0: all cores).
void count_scaled(Backend& backend, const op::Quantize& op, std::span<const float> in, std::span<const float> out,
                  std::span<const BlockScale> scales, std::span<const float> amax, int threads);

} // namespace amp

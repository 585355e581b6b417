// Whole tensors and recordings: every element counted once, on several threads, in bounded memory.
#pragma once

#include <ampscope/sim/analysis/count.h>
#include <ampscope/sim/analysis/pass.h>

#include <optional>

namespace amp {

/// The statistics of one tensor as stored: a recorded loss scale is not divided out. The result does not depend on
/// `threads` (0: all cores). Throws FileError.
MagnitudeStatistics measure(const TensorFile& file, std::size_t tensor, int threads, const Progress& progress = {});

/// The statistics of |x / recorded_scale| with exact quotients: measure() for tensors that are still multiplied by a
/// loss scale. Extremes and sums are computed from the doubles nearest to the quotients.
MagnitudeStatistics measure_divided(const TensorFile& file, std::size_t tensor, double recorded_scale, int threads,
                                    const Progress& progress = {});

/// The same with its sums unrounded, so that those of parts of a tensor can be merged. Parts begin at whole blocks of
/// sum_block numbers.
ExactMagnitudes measure_exactly(const TensorFile& file, std::size_t tensor, double recorded_scale, int threads,
                                const Progress& progress = {});

/// The fine histogram of |x / recorded_scale|, for casts that depend on more than the classes of magnitudes.
FineHistogram measure_fine(const TensorFile& file, std::size_t tensor, double recorded_scale, const FineNeeds& needs,
                           int threads, const Progress& progress = {});

/// scale * x / recorded_scale for finite non-zero x, to 64 bits of which the last is sticky.
Unpacked scaled(const Unpacked& x, double scale, double recorded_scale);

/// log2 of the scale if it is a power of two, else std::nullopt.
std::optional<int> exact_log2(double scale);

} // namespace amp

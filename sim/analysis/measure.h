// Whole tensors and recordings: every element counted once, on several threads, in bounded memory.
#pragma once

#include <ampscope/sim/analysis/count.h>
#include <ampscope/sim/analysis/pass.h>

namespace amp {

/// The statistics of one tensor as stored (a recorded loss scale is not divided out). The result does not depend on
/// `threads` (0: all cores). Throws FileError.
MagnitudeStatistics measure(const TensorFile& file, std::size_t tensor, int threads, const Progress& progress = {});

} // namespace amp

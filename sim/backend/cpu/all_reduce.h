// The all-reduce of a training, for callers without a program.
#pragma once

#include <ampscope/sim/program/ops/all_reduce.h>

#include <span>
#include <vector>

namespace amp {

/// The mean of the gradients, one of each replica, as op::AllReduce computes it. Throws std::invalid_argument for
/// options that do not go together, and for gradients of different lengths. `threads`: 0 for every core; results do not
/// depend on it.
std::vector<float> all_reduced(const AllReduceOptions& options, std::span<const std::span<const float>> gradients,
                               int threads = 0);

} // namespace amp

// Steps of an optimizer on the memory of a framework that computes eagerly.
#pragma once

#include <ampscope/sim/backend/update.h>
#include <ampscope/sim/base/tensor.h>
#include <ampscope/sim/program/precision.h>

namespace amp {

/// Does what update() does on a parameter of that shape. Muon takes matrices, whose products have the accumulators of
/// `precision`, and Adafactor matrices and vectors; both round gradients to the weight's format. Throws
/// std::invalid_argument for other shapes. Adafactor's v of a matrix holds the number of each row, then of each column.
/// The result does not depend on `threads`; 0: every core.
UpdateCounts eager_update(const OptimizerOptions& options, const UpdateStep& step, const ParameterState& state,
                          const Shape& shape, const Precision& precision, int threads);

} // namespace amp

// Steps of an optimizer on the memory of a framework that computes eagerly.
#pragma once

#include <ampscope/sim/backend/update.h>
#include <ampscope/sim/base/tensor.h>
#include <ampscope/sim/program/ops/matmul.h>

namespace amp {

/// Does what update() does on a parameter of that shape. Muon takes matrices, whose products follow `products`; its
/// state.gradient holds values of the weight's format. The result does not depend on `threads`; 0: every core. Throws
/// std::invalid_argument for other shapes.
UpdateCounts eager_update(const OptimizerOptions& options, const UpdateStep& step, const ParameterState& state,
                          const Shape& shape, const op::MatmulArithmetic& products, int threads);

} // namespace amp

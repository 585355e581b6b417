// Adafactor's step as ops: second moments in factors, and a direction whose size is known before the step.
#pragma once

#include <ampscope/sim/program/graph.h>

namespace amp {

/// Appends to program.update, as torch.optim.Adafactor has it (torch/optim/_adafactor.py of PyTorch 2.15). Every result
/// is rounded to the format of its tensor: V and U have that of the weight.
/// 1. The norm of the weight.
/// 2. Second moments, with w = t^beta2_decay in step t. Of a matrix: v = lerp(v, mean squares of rows, w), and
///    v_columns with those of columns; V = v v_columns^T / max(mean of v, eps1). Of others: V = v = lerp(v, g g, w).
/// 3. The direction U = g / sqrt(max(V, eps1^2)), as a product with the reciprocal, and its norm.
/// 4. `update`, with U in place of its gradient and these norms.
/// Squares are summed in FP64, of a tensor and of a row in 16 lanes and of a column in order, and the mean of v is a
/// sum of FP32 in order; PyTorch's own order depends on the processor. `v_columns` is there for a matrix alone.
void append_adafactor(Program& program, op::Update update, TensorId v, TensorId v_columns);

} // namespace amp

// Muon's step on a matrix as ops: momentum, then an iteration of matrix products that makes it nearly orthogonal.
#pragma once

#include <ampscope/sim/program/graph.h>

#include <span>

namespace amp {

/// The parameters that Muon updates: matrices (a convolution's are channels x patch) that the network multiplies by, as
/// it does by no embedding, except for the last one, which makes the outputs. The order is that of `parameters`.
std::vector<TensorId> hidden_matrices(const Program& program, std::span<const Parameter> parameters);

/// Appends to program.update, as torch.optim.Muon has it (torch/optim/_muon.py of PyTorch 2.15):
/// 1. m = lerp(m, gradient, 1 - momentum); direction = lerp(gradient, m, momentum) with Nesterov's, else m.
/// 2. X = direction in BF16, divided by its norm, itself rounded to BF16, or by 1e-7 if the norm is less. Squares are
///    summed in FP64 here and in FP32 by PyTorch, whose norm is infinite from 2^64 on, so that X is 0: as it is here.
/// 3. Five times, in BF16 (Newton-Schulz): A = X X^T, B = b A + c A A, X = a X + B X, with a = 3.4445, b = -4.775 and
///    c = 2.0315. The sums of products follow `products`, what is added to them is added in FP32, and each of A, B and
///    X is rounded once. A matrix with more rows than columns is iterated as its transpose.
/// 4. `update`, with X in place of its gradient, and the learning rate adjusted to the matrix.
/// In Keller Jordan's order (muon.py of github.com/KellerJordan/Muon, 857d1ad) instead:
/// 2. X is divided by its norm + 1e-7, itself rounded to BF16.
/// 3. B = b A + (c A) A and X = a X + B X, where every product, of a matrix or a number, and every sum is rounded to
///    BF16.
/// 4. X, not the learning rate, is multiplied by the factor of the matrix, and rounded to BF16. A convolution's factor
///    is that of channels x patch; his code takes a kernel's height and width.
void append_muon(Program& program, op::Update update, TensorId m, const op::MatmulArithmetic& products);

} // namespace amp

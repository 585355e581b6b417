// What every op header needs. An op is a plain struct of tensors and options, with
//   static constexpr std::string_view name;   its row in the autocast table, or a name of its own if it has none
//   static constexpr std::string_view accumulation;   optional: the format and order of its sums
//   inputs(), outputs();                      arrays of TensorId; callers skip absent ones
//   static constexpr bool adds = true;   optional: it adds to outputs, or leaves some as they are, and does not list
//                                        these among its inputs
//   products();                               optional: how its matrix products compute
//   void run(Cpu&, const Op&);                in the file of the same name in sim/backend/cpu
//   void run(Cuda&, const Op&);               likewise in sim/backend/cuda; or one template in sim/backend/kernels
//   void backward(Graph&, const Op&);         appends the ops of its gradient, if it has one
// and a function that checks shapes, appends the op to a Graph and returns its result. Results are computed in double,
// unless the op says otherwise, and rounded once to the format of the output tensor, to nearest-even.
#pragma once

#include <ampscope/formats/policy.h>
#include <ampscope/sim/base/tensor.h>

#include <array>
#include <string_view>

namespace amp {

class Cpu;
class Cuda;
class Graph;

} // namespace amp

// What every op header needs. An op is a plain struct that names tensors, with
//   static constexpr std::string_view name;   the row of the autocast table, or its own where it has none
//   static constexpr std::string_view accumulation;   optional: the format and order of its sums
//   inputs(), outputs();                      arrays of TensorId; absent ones are skipped by who reads them
//   void run(Cpu&, const Op&);                sim/backend/cpu, in the file of the same name
//   void run(Cuda&, const Op&);               sim/backend/cuda, likewise; or a template for both in sim/backend/kernels
//   void backward(Graph&, const Op&);         appends the ops of its gradient, if it has one
// and a function that checks shapes, appends it to a Graph and returns its result. Results are computed wide, in double
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

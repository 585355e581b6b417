// In which order the ops of one call run, and where its tensors lie meanwhile, so that little memory is in use at once:
// the patches of a convolution take nine times what its image takes.
#pragma once

#include <ampscope/sim/program/ops.h>

#include <cstddef>
#include <span>
#include <vector>

namespace amp {

/// The tensors that an op writes to, by the index of the one whose memory they are: none for a View.
std::vector<int> written_by(const Program& program, const Op& op);

/// Backward as a tape of its own: each op as early as what it reads allows, and each op of forward whose result is
/// read, which is computed again, just before the first that reads it. Every op reads what it reads in the program.
Tape backward_by_itself(const Program& program);

/// From which to which op of a tape something holds what it has, both included.
struct Lifetime {
    std::size_t begin = 0, end = 0;
};
/// The lifetimes of tensors that no tensor's view is (TensorInfo::storage) on a tape, by their index in the program. A
/// tensor that the tape does not use ends before it begins.
std::vector<Lifetime> lifetimes(const Program& program, const Tape& tape);

/// So many numbers that are held for some time.
struct HeldNumbers {
    std::size_t count = 0;
    Lifetime lifetime{};
};
/// Where each begins in a common memory, at a multiple of 16 numbers: those held at the same time do not overlap.
/// `size`: of that memory.
struct MemoryPlan {
    std::vector<std::size_t> begins;
    std::size_t size = 0;
};
MemoryPlan memory_plan(std::span<const HeldNumbers> held);

} // namespace amp

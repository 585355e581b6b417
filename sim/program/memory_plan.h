// Which tensors may lie in the same memory, one after the other: from the ops of a tape follows when each is held, and
// from that where it lies.
//
//     program.shared = share_memory(program, results);   // before a backend is made
#pragma once

#include <ampscope/sim/program/ops.h>

#include <cstddef>
#include <initializer_list>
#include <span>
#include <vector>

namespace amp {

/// The tensors that an op reads, or writes to, by the index of the one whose memory they are (TensorInfo::storage). A
/// View writes none.
std::vector<int> read_by(const Program& program, const Op& op);
std::vector<int> written_by(const Program& program, const Op& op);

/// From which to which op something holds what it has, both included.
struct Lifetime {
    std::size_t begin = 0, end = 0;
};
/// The lifetimes of tensors that are no views on tapes that run one after the other, by their index in the program. A
/// tensor that the tapes do not use ends before it begins.
std::vector<Lifetime> lifetimes(const Program& program, std::initializer_list<const Tape*> tapes);

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

/// A place for each tensor that a step writes in full before it reads it: held from the op that does to the last that
/// uses it or, if it is one of `results`, to the end of the step. All others have memory of their own: inputs, weights,
/// state, totals of gradients. Forward writes over what the step before has left, whether or not the rest of the step
/// follows; within a step forward and backward may be repeated.
SharedMemory share_memory(const Program& program, std::span<const TensorId> results);

} // namespace amp

#include <ampscope/sim/cpu/cpu.h>

#include <ampscope/sim/parallel.h>

namespace amp {

RoundingCounts& RoundingCounts::operator+=(const RoundingCounts& other) {
    elements += other.elements;
    nonzero += other.nonzero;
    underflow += other.underflow;
    overflow += other.overflow;
    return *this;
}

Cpu::Cpu(const Program& program, int threads)
    : program_(program), threads_(thread_count(threads)), buffers_(program.tensors.size()),
      roundings_(program.tensors.size()), scalings_(program.tensors.size()) {
    for (std::size_t i = 0; i < buffers_.size(); ++i)
        if (!program.tensors[i].storage) buffers_[i].assign(static_cast<std::size_t>(program.tensors[i].count()), 0.0F);
}

} // namespace amp

#include <ampscope/sim/backend/cpu/cpu.h>

#include <ampscope/formats/environment.h>
#include <ampscope/sim/backend/cpu/detail/wide.h>
#include <ampscope/sim/backend/kernels/mapped.h>
#include <ampscope/sim/base/parallel.h>

namespace amp {

namespace {

// Not inlined where a FloatEnvironment is set (environment.h).
[[gnu::noinline]] void run_any(Cpu& cpu, const Op& op) {
    std::visit([&](const auto& o) { op::run(cpu, o); }, op);
}

} // namespace

Cpu::Cpu(const Program& program, int threads) : Cpu(program, Borrowed{}, threads) {
    buffers_.resize(program.tensors.size());
    for (std::size_t i = 0; i < buffers_.size(); ++i) {
        if (!program.tensors[i].storage) buffers_[i].assign(static_cast<std::size_t>(program.tensors[i].count()), 0.0F);
        elements_[i] = buffers_[i];
    }
}

Cpu::Cpu(const Program& program, Borrowed /*borrowed*/, int threads)
    : Backend(program), threads_(thread_count(threads)), elements_(program.tensors.size()) {}

void Cpu::run(const Op& op) {
    const FloatEnvironment environment;
    run_any(*this, op);
}

MakeBackend on_processor(int threads) {
    return [threads](const Program& program) { return std::make_unique<Cpu>(program, threads); };
}

} // namespace amp

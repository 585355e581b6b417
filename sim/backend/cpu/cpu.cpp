#include <ampscope/sim/backend/cpu/cpu.h>

#include <ampscope/formats/environment.h>
#include <ampscope/sim/backend/cpu/detail/wide.h>
#include <ampscope/sim/backend/kernels/mapped.h>
#include <ampscope/sim/base/batch.h>
#include <ampscope/sim/base/parallel.h>

#include <new>

namespace amp {

namespace {

constexpr std::align_val_t arena_alignment{64}; // a cache line

// Not inlined where a FloatEnvironment is set (environment.h).
[[gnu::noinline]] void run_any(Cpu& cpu, const Op& op) {
    std::visit([&](const auto& o) { op::run(cpu, o); }, op);
}

} // namespace

Cpu::Cpu(const Program& program, int threads) : Cpu(program, Borrowed{}, threads) {
    buffers_.resize(program.tensors.size());
    arena_.reset(static_cast<float*>(::operator new(program.shared.size * sizeof(float), arena_alignment)));
    for (std::size_t i = 0; i < buffers_.size(); ++i) {
        if (program.tensors[i].storage) continue;
        const auto count = static_cast<std::size_t>(program.tensors[i].count());
        if (const auto place = program.shared.place(i)) {
            elements_[i] = {arena_.get() + *place, count};
            continue;
        }
        buffers_[i].assign(count, 0.0F);
        elements_[i] = buffers_[i];
    }
}

void Cpu::Release::operator()(float* elements) const { ::operator delete(elements, arena_alignment); }

Cpu::Cpu(const Program& program, Borrowed /*borrowed*/, int threads)
    : Backend(program), threads_(thread_count(threads)), elements_(program.tensors.size()) {}

void Cpu::lend(TensorId id, std::span<float> elements, std::uint16_t* codes, bool given) {
    lend(id, elements);
    encoded_.resize(elements_.size());
    encoded_[storage(id)] = {codes, given};
}

const std::uint16_t* Cpu::encoded(TensorId id) const {
    return !encoded_.empty() && encoded_[storage(id)].holds ? encoded_[storage(id)].codes : nullptr;
}

std::uint16_t* Cpu::write_codes(TensorId id) {
    if (encoded_.empty() || encoded_[storage(id)].codes == nullptr) return nullptr;
    encoded_[storage(id)].holds = true;
    return encoded_[storage(id)].codes;
}

void Cpu::encode(TensorId id) {
    if (encoded(id) != nullptr) return;
    const std::span<const float> elements = (*this)[id];
    amp::encode(info(id).format, elements, std::span(write_codes(id), elements.size()), {}, threads_);
}

void Cpu::decode(TensorId id) {
    if (encoded(id) == nullptr) return;
    const std::span<float> elements = (*this)[id];
    amp::decode(info(id).format, std::span(encoded(id), elements.size()), elements, {}, threads_);
    encoded_[storage(id)].holds = false;
}

void Cpu::run(const Op& op) {
    const FloatEnvironment environment;
    if (!encoded_.empty()) {
        if (!std::holds_alternative<op::Matmul>(op)) // which reads codes
            for (const TensorId id : inputs_of(op)) decode(id);
        for (const TensorId id : outputs_of(op)) encoded_[storage(id)].holds = false;
    }
    run_any(*this, op);
}

MakeBackend on_processor(int threads) {
    return [threads](const Program& program) { return std::make_unique<Cpu>(program, threads); };
}

} // namespace amp

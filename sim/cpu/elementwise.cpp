#include <ampscope/sim/cpu/wide.h>

#include <cmath>

namespace amp {

namespace {

/// a + b or a * b, b of `period` elements repeated.
template <bool multiplies>
struct BinaryKernel {
    AMPSCOPE_KERNEL void run(std::int64_t begin, std::int64_t n, double* wide, const float* a, const float* b,
                             std::int64_t period) {
        for (std::int64_t i = 0; i < n;) {
            const std::int64_t j = (begin + i) % period, m = period - j < n - i ? period - j : n - i;
            const float *x = a + begin + i, *y = b + j;
            double* const to = wide + i;
            for (std::int64_t l = 0; l < m; ++l)
                to[l] = multiplies ? static_cast<double>(x[l]) * y[l] : static_cast<double>(x[l]) + y[l];
            i += m;
        }
    }
};

struct ScaleKernel {
    AMPSCOPE_KERNEL void run(std::int64_t begin, std::int64_t n, double* wide, const float* in, double factor) {
        for (std::int64_t i = 0; i < n; ++i) wide[i] = in[begin + i] * factor;
    }
};

struct DropoutKernel {
    AMPSCOPE_KERNEL void run(std::int64_t begin, std::int64_t n, double* wide, const float* in, std::uint64_t threshold,
                             double factor, RandomKey key, std::uint64_t first) {
        for (std::int64_t i = 0; i < n; ++i) {
            const std::uint64_t index = first + static_cast<std::uint64_t>(begin + i);
            wide[i] = key.word(index) >= threshold ? in[begin + i] * factor : 0;
        }
    }
};

} // namespace

void run(Cpu& cpu, const Add& op) {
    cpu::map<BinaryKernel<false>>(cpu, op.out, cpu[op.a].data(), cpu[op.b].data(), cpu.info(op.b).count());
}

void run(Cpu& cpu, const Mul& op) {
    cpu::map<BinaryKernel<true>>(cpu, op.out, cpu[op.a].data(), cpu[op.b].data(), cpu.info(op.b).count());
}

void run(Cpu& cpu, const Scale& op) { cpu::map<ScaleKernel>(cpu, op.out, cpu[op.in].data(), op.factor); }

void run(Cpu& cpu, const Cast& op) {
    const std::span<const float> in = cpu[op.in];
    const std::span<float> out = cpu[op.out];
    cpu::for_elements(cpu, cpu.info(op.out).count(), [&](std::int64_t begin, std::int64_t end) {
        std::copy(in.begin() + begin, in.begin() + end, out.begin() + begin);
        cpu::round_in_place(cpu, op.out, begin, end - begin);
    });
}

void run(Cpu& cpu, const Dropout& op) {
    const StepContext& c = cpu.context;
    const auto part = static_cast<std::uint64_t>(c.replica * c.micro_batches + c.micro_batch);
    const auto count = static_cast<std::uint64_t>(cpu.info(op.out).count());
    const double probability = c.training ? op.probability : 0;
    cpu::map<DropoutKernel>(cpu, op.out, cpu[op.in].data(), static_cast<std::uint64_t>(std::ceil(probability * 0x1p32)),
                            1 / (1 - probability), RandomKey{.seed = c.seed, .stream = op.stream, .step = c.step},
                            part * count);
}

} // namespace amp

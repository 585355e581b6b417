#include <ampscope/formats/batch.h>
#include <ampscope/formats/codec.h>
#include <ampscope/sim/backend/cpu/detail/wide.h>
#include <ampscope/sim/backend/kernels/gradient.h>

#include <atomic>
#include <cmath>

namespace amp::op {

using namespace kernels;

namespace {

struct FiniteKernel {
    AMPSCOPE_KERNEL void run(const float* x, std::int64_t n, bool* finite) {
        float zero = 0; // 0 unless an element is infinite or NaN
        for (std::int64_t i = 0; i < n; ++i) zero = x[i] - x[i] == 0 ? zero : 1;
        *finite = zero == 0;
    }
};

struct SquaresKernel {
    AMPSCOPE_KERNEL void run(const float* x, std::int64_t n, double* sum) {
        *sum = lane_sum(n, [&](std::int64_t i) { return static_cast<double>(x[i]) * x[i]; });
    }
};

double rounded(const FormatSpec& f, double x) { return quantize(f, x); }

} // namespace

void run(Cpu& cpu, const CheckFinite& op) {
    std::atomic<bool> found = false;
    for (const TensorId id : op.gradients) {
        const float* const x = cpu[id].data();
        cpu::for_elements(cpu, cpu.info(id).count(), [&](std::int64_t begin, std::int64_t end) {
            bool finite = true;
            dispatch<FiniteKernel>(best_instruction_set(), x + begin, end - begin, &finite);
            if (!finite) found = true;
        });
    }
    cpu.found_inf = cpu.found_inf || found;
}

void run(Cpu& cpu, const GlobalNorm& op) {
    double total = 0;
    for (const TensorId id : op.gradients) {
        double squares = 0;
        dispatch<SquaresKernel>(best_instruction_set(), static_cast<const float*>(cpu[id].data()), cpu.info(id).count(),
                                &squares);
        const double norm = rounded(cpu.info(id).format, std::sqrt(squares));
        total += norm * norm;
    }
    total = std::sqrt(total);
    cpu::store(cpu, op.norm, 0, &total, 1);
}

void run(Cpu& cpu, const Clip& op) {
    const double factor = clip_factor(cpu.info(op.norm).format, cpu[op.norm][0], op.max_norm);
    map(cpu, WideProductKernel{}, op.gradient, static_cast<const float*>(cpu[op.gradient].data()), factor);
}

} // namespace amp::op

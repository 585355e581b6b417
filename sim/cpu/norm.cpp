#include <ampscope/sim/cpu/wide.h>

#include <cmath>

namespace amp {

namespace {

/// What a row is shifted and multiplied by. n is a whole number as a double.
struct Moments {
    double mean = 0, inverse = 0;
};

[[gnu::always_inline]] inline Moments moments(const float* x, std::int64_t n, NormKind kind, double eps) {
    const auto count = static_cast<double>(n);
    Moments m;
    if (kind == NormKind::layer) m.mean = cpu::lane_sum(n, [&](std::int64_t i) { return double{x[i]}; }) / count;
    const double squares = cpu::lane_sum(n, [&](std::int64_t i) {
        const double d = x[i] - m.mean;
        return d * d;
    });
    m.inverse = 1 / std::sqrt(squares / count + eps);
    return m;
}

struct NormKernel {
    AMPSCOPE_KERNEL void run(std::int64_t row, std::int64_t n, double* wide, const float* in, const float* weight,
                             const float* bias, NormKind kind, double eps) {
        const float* const x = in + row * n;
        const Moments m = moments(x, n, kind, eps);
        for (std::int64_t i = 0; i < n; ++i) wide[i] = (x[i] - m.mean) * m.inverse * weight[i];
        if (bias != nullptr)
            for (std::int64_t i = 0; i < n; ++i) wide[i] += bias[i];
    }
};

/// With y = (x - mean) / s and d = grad * weight: (d - mean of d - y * mean of (d y)) / s; rms: without the mean of d.
struct BackwardKernel {
    AMPSCOPE_KERNEL void run(std::int64_t row, std::int64_t n, double* wide, const float* in, const float* weight,
                             const float* grad, NormKind kind, double eps) {
        const float *x = in + row * n, *g = grad + row * n;
        const Moments m = moments(x, n, kind, eps);
        const auto count = static_cast<double>(n);
        for (std::int64_t i = 0; i < n; ++i) wide[i] = static_cast<double>(g[i]) * weight[i];
        const double mean =
            kind == NormKind::layer ? cpu::lane_sum(n, [&](std::int64_t i) { return wide[i]; }) / count : 0;
        const double along =
            cpu::lane_sum(n, [&](std::int64_t i) { return wide[i] * ((x[i] - m.mean) * m.inverse); }) / count;
        for (std::int64_t i = 0; i < n; ++i)
            wide[i] = (wide[i] - mean - (x[i] - m.mean) * m.inverse * along) * m.inverse;
    }
};

/// Adds a row's share of the gradients of weight and bias.
struct ParameterKernel {
    AMPSCOPE_KERNEL void run(const float* x, const float* g, std::int64_t n, NormKind kind, double eps, double* weight,
                             double* bias) {
        const Moments m = moments(x, n, kind, eps);
        for (std::int64_t i = 0; i < n; ++i) {
            weight[i] += g[i] * ((x[i] - m.mean) * m.inverse);
            bias[i] += g[i];
        }
    }
};

void parameter_gradients(Cpu& cpu, const NormBackward& op) {
    constexpr std::int64_t rows_at_once = 32;
    const std::int64_t n = cpu.info(op.in).shape.back(), rows = cpu.info(op.in).count() / n;
    const std::int64_t blocks = (rows + rows_at_once - 1) / rows_at_once;
    const float *x = cpu[op.in].data(), *g = cpu[op.grad_out].data();
    std::vector<double> sums(static_cast<std::size_t>(2 * blocks * n));
    for_each_chunk(static_cast<std::uint64_t>(blocks), static_cast<std::uint64_t>(cpu::grain / (rows_at_once * n) + 1),
                   cpu.threads(), [&](std::uint64_t begin, std::uint64_t end) {
                       for (auto b = static_cast<std::int64_t>(begin); b < static_cast<std::int64_t>(end); ++b) {
                           double* const to = sums.data() + 2 * b * n;
                           for (std::int64_t r = b * rows_at_once; r < std::min(rows, (b + 1) * rows_at_once); ++r)
                               detail::dispatch<ParameterKernel>(detail::best_instruction_set(), x + r * n, g + r * n,
                                                                 n, op.kind, op.eps, to, to + n);
                       }
                   });
    for (std::int64_t b = 1; b < blocks; ++b)
        for (std::int64_t i = 0; i < 2 * n; ++i)
            sums[static_cast<std::size_t>(i)] += sums[static_cast<std::size_t>(2 * b * n + i)];
    if (op.grad_weight) cpu::store(cpu, op.grad_weight, 0, sums.data(), n);
    if (op.grad_bias) cpu::store(cpu, op.grad_bias, 0, sums.data() + n, n);
}

} // namespace

void run(Cpu& cpu, const Norm& op) {
    const float* const bias = op.bias ? cpu[op.bias].data() : nullptr;
    cpu::map_rows<NormKernel>(cpu, op.out, cpu[op.in].data(), cpu[op.weight].data(), bias, op.kind, op.eps);
}

void run(Cpu& cpu, const NormBackward& op) {
    if (op.grad_in)
        cpu::map_rows<BackwardKernel>(cpu, op.grad_in, cpu[op.in].data(), cpu[op.weight].data(),
                                      cpu[op.grad_out].data(), op.kind, op.eps);
    if (op.grad_weight || op.grad_bias) parameter_gradients(cpu, op);
}

} // namespace amp

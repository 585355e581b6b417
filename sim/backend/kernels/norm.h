// Normalisation and its gradients, row by row.
#pragma once

#include <ampscope/sim/backend/kernels/kernel.h>
#include <ampscope/sim/program/ops/norm.h>

#include <cmath>

namespace amp::kernels {

/// The mean that is subtracted from a row, and the factor that it is then multiplied by.
struct Moments {
    double mean = 0, inverse = 0;
};

AMPSCOPE_INLINE Moments moments(const float* x, std::int64_t n, op::NormKind kind, double eps) {
    const auto count = static_cast<double>(n);
    Moments m;
    if (kind == op::NormKind::layer) m.mean = lane_sum(n, [&](std::int64_t i) { return double{x[i]}; }) / count;
    const double squares = lane_sum(n, [&](std::int64_t i) {
        const double d = x[i] - m.mean;
        return d * d;
    });
    m.inverse = 1 / std::sqrt(squares / count + eps);
    return m;
}

struct NormKernel {
    AMPSCOPE_KERNEL void run(std::int64_t row, std::int64_t n, double* wide, const float* in, const float* weight,
                             const float* bias, op::NormKind kind, double eps) {
        const float* const x = in + row * n;
        const Moments m = moments(x, n, kind, eps);
        for (std::int64_t i = 0; i < n; ++i) wide[i] = (x[i] - m.mean) * m.inverse * weight[i];
        if (bias != nullptr)
            for (std::int64_t i = 0; i < n; ++i) wide[i] += bias[i];
    }
};

/// With y = (x - mean) / s and d = grad * weight: (d - mean of d - y * mean of (d y)) / s; rms leaves out the mean of
/// d.
struct BackwardKernel {
    AMPSCOPE_KERNEL void run(std::int64_t row, std::int64_t n, double* wide, const float* in, const float* weight,
                             const float* grad, op::NormKind kind, double eps) {
        const float *x = in + row * n, *g = grad + row * n;
        const Moments m = moments(x, n, kind, eps);
        const auto count = static_cast<double>(n);
        for (std::int64_t i = 0; i < n; ++i) wide[i] = static_cast<double>(g[i]) * weight[i];
        const double mean =
            kind == op::NormKind::layer ? lane_sum(n, [&](std::int64_t i) { return wide[i]; }) / count : 0;
        const double along =
            lane_sum(n, [&](std::int64_t i) { return wide[i] * ((x[i] - m.mean) * m.inverse); }) / count;
        for (std::int64_t i = 0; i < n; ++i)
            wide[i] = (wide[i] - mean - (x[i] - m.mean) * m.inverse * along) * m.inverse;
    }
};

/// Adds one row's contribution to the gradients of weight and bias.
struct ParameterKernel {
    AMPSCOPE_KERNEL void run(const float* x, const float* g, std::int64_t n, op::NormKind kind, double eps,
                             double* weight, double* bias) {
        const Moments m = moments(x, n, kind, eps);
        for (std::int64_t i = 0; i < n; ++i) {
            weight[i] += g[i] * ((x[i] - m.mean) * m.inverse);
            bias[i] += g[i];
        }
    }
};

} // namespace amp::kernels

namespace amp::op {

template <class On>
void run(On& on, const Norm& op) {
    const float* const bias = op.bias ? on.in(op.bias) : nullptr;
    map_rows(on, kernels::NormKernel{}, op.out, on.in(op.in), on.in(op.weight), bias, op.kind, op.eps);
}

} // namespace amp::op

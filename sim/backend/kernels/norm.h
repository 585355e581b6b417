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

/// The number of the first weight of a row of n numbers.
AMPSCOPE_INLINE std::int64_t first_parameter(const op::NormRows& rows, std::int64_t row, std::int64_t n) {
    return rows.groups == 1 ? 0 : row % rows.groups * (n / rows.positions);
}

/// Calls body(i, p) for the n numbers of a row: number i has the weight and the bias of number p.
template <class Body>
AMPSCOPE_INLINE void with_parameters(const op::NormRows& rows, std::int64_t row, std::int64_t n, const Body& body) {
    std::int64_t p = first_parameter(rows, row, n);
    if (rows.positions == 1) { // a loop for vectors
        for (std::int64_t i = 0; i < n; ++i) body(i, p + i);
        return;
    }
    for (std::int64_t begin = 0; begin < n; begin += rows.positions, ++p)
        for (std::int64_t i = begin; i < begin + rows.positions; ++i) body(i, p);
}

struct NormKernel {
    AMPSCOPE_KERNEL void run(std::int64_t row, std::int64_t n, double* wide, const float* in, const float* weight,
                             const float* bias, op::NormKind kind, double eps, op::NormRows rows) {
        const float* const x = in + row * n;
        const Moments m = moments(x, n, kind, eps);
        with_parameters(rows, row, n,
                        [&](std::int64_t i, std::int64_t p) { wide[i] = (x[i] - m.mean) * m.inverse * weight[p]; });
        if (bias != nullptr) with_parameters(rows, row, n, [&](std::int64_t i, std::int64_t p) { wide[i] += bias[p]; });
    }
};

/// With y = (x - mean) / s and d = grad * weight: (d - mean of d - y * mean of (d y)) / s; rms leaves out the mean of
/// d.
struct BackwardKernel {
    AMPSCOPE_KERNEL void run(std::int64_t row, std::int64_t n, double* wide, const float* in, const float* weight,
                             const float* grad, op::NormKind kind, double eps, op::NormRows rows) {
        const float *x = in + row * n, *g = grad + row * n;
        const Moments m = moments(x, n, kind, eps);
        const auto count = static_cast<double>(n);
        with_parameters(rows, row, n,
                        [&](std::int64_t i, std::int64_t p) { wide[i] = static_cast<double>(g[i]) * weight[p]; });
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
    AMPSCOPE_KERNEL void run(std::int64_t row, std::int64_t n, const float* in, const float* grad, op::NormKind kind,
                             double eps, op::NormRows rows, double* weight, double* bias) {
        const float *x = in + row * n, *g = grad + row * n;
        const Moments m = moments(x, n, kind, eps);
        std::int64_t p = first_parameter(rows, row, n);
        if (rows.positions == 1) { // a loop for vectors
            for (std::int64_t i = 0; i < n; ++i) {
                weight[p + i] += g[i] * ((x[i] - m.mean) * m.inverse);
                bias[p + i] += g[i];
            }
            return;
        }
        for (std::int64_t begin = 0; begin < n; begin += rows.positions, ++p) {
            weight[p] += lane_sum(rows.positions,
                                  [&](std::int64_t i) { return g[begin + i] * ((x[begin + i] - m.mean) * m.inverse); });
            bias[p] += lane_sum(rows.positions, [&](std::int64_t i) { return double{g[begin + i]}; });
        }
    }
};

} // namespace amp::kernels

namespace amp::op {

template <class On>
void run(On& on, const Norm& op) {
    const float* const bias = op.bias ? on.in(op.bias) : nullptr;
    map_rows(on, kernels::NormKernel{}, op.out, on.in(op.in), on.in(op.weight), bias, op.kind, op.eps, op.rows);
}

} // namespace amp::op

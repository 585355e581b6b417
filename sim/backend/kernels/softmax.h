// Softmax and its gradient, row by row.
#pragma once

#include <ampscope/formats/scalar_math.h>
#include <ampscope/sim/backend/kernels/kernel.h>
#include <ampscope/sim/program/ops/softmax.h>

namespace amp::kernels {

/// The number of elements that a row uses.
AMPSCOPE_INLINE std::int64_t known(std::int64_t row, std::int64_t width, bool causal) {
    return causal ? row % width + 1 : width;
}

struct SoftmaxKernel {
    AMPSCOPE_KERNEL void run(std::int64_t row, std::int64_t width, double* wide, const float* in, bool causal) {
        const float* const x = in + row * width;
        const std::int64_t n = known(row, width, causal);
        const float max = greatest(x, n); // if there is a NaN, the sum becomes NaN
        const std::int64_t whole = (n + 15) / 16 * 16, computed = whole < width ? whole : width; // in whole vectors
        for (std::int64_t i = 0; i < computed; ++i) wide[i] = math::exp(static_cast<double>(x[i]) - max);
        const double sum = lane_sum(n, [&](std::int64_t i) { return wide[i]; });
        for (std::int64_t i = 0; i < n; ++i) wide[i] /= sum;
        for (std::int64_t i = n; i < width; ++i) wide[i] = 0;
    }
};

struct SoftmaxBackwardKernel {
    AMPSCOPE_KERNEL void run(std::int64_t row, std::int64_t width, double* wide, const float* result, const float* grad,
                             bool causal) {
        const float *y = result + row * width, *g = grad + row * width;
        const std::int64_t n = known(row, width, causal);
        const double sum = lane_sum(n, [&](std::int64_t i) { return static_cast<double>(y[i]) * g[i]; });
        for (std::int64_t i = 0; i < n; ++i) wide[i] = y[i] * (g[i] - sum);
        for (std::int64_t i = n; i < width; ++i) wide[i] = 0;
    }
};

} // namespace amp::kernels

namespace amp::op {

template <class On>
void run(On& on, const Softmax& op) {
    map_rows(on, kernels::SoftmaxKernel{}, op.out, on.in(op.in), op.causal);
}

template <class On>
void run(On& on, const SoftmaxBackward& op) {
    map_rows(on, kernels::SoftmaxBackwardKernel{}, op.grad_in, on.in(op.y), on.in(op.grad_out), op.causal);
}

} // namespace amp::op

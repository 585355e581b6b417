// Softmax and its gradient, row by row.
#pragma once

#include <ampscope/formats/scalar_math_estimate.h>
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
        if (!estimated(x, n, computed, max, wide)) exact(x, n, computed, max, wide);
        for (std::int64_t i = n; i < width; ++i) wide[i] = 0;
    }

    AMPSCOPE_KERNEL void exact(const float* x, std::int64_t n, std::int64_t computed, float max, double* wide) {
        for (std::int64_t i = 0; i < computed; ++i) wide[i] = math::exp(static_cast<double>(x[i]) - max);
        const double sum = lane_sum(n, [&](std::int64_t i) { return wide[i]; });
        for (std::int64_t i = 0; i < n; ++i) wide[i] /= sum;
    }

    /// Results that round as those of exact(). Returns false where a result is too near a boundary of a format, as one
    /// of 2^16 is and each near 1, and where there are no estimates. Relative errors are below 2^-42: 2^-43 of two
    /// estimates of e^x, and 2^-52 for each 16 terms of a sum, which limits their number.
    AMPSCOPE_KERNEL bool estimated([[maybe_unused]] const float* x, [[maybe_unused]] std::int64_t n,
                                   [[maybe_unused]] std::int64_t computed, [[maybe_unused]] float max,
                                   [[maybe_unused]] double* wide) {
#if !defined(__CUDACC__) // where a fused multiply-add is one instruction, and loops are vectorised
        constexpr std::int64_t most = 4096;
        constexpr int precision = 42;
        if (!has_fma() || n > most) return false;
        for (std::int64_t i = 0; i < computed; ++i) wide[i] = math::estimate::exp(static_cast<double>(x[i]) - max);
        const double sum = lane_sum(n, [&](std::int64_t i) { return wide[i]; }), factor = 1 / sum;
        if (sum != sum) return false; // of numbers far below the greatest there are no estimates
        std::int64_t doubts = 0;
        for (std::int64_t i = 0; i < n; ++i) {
            wide[i] *= factor;
            doubts += !math::estimate::decides_rounding(wide[i], precision);
        }
        return doubts == 0;
#else
        return false;
#endif
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

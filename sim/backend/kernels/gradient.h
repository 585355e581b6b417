// Element-wise ops on gradients.
#pragma once

#include <ampscope/formats/codec.h>
#include <ampscope/sim/backend/kernels/kernel.h>
#include <ampscope/sim/program/ops/gradient.h>

#include <cmath>

namespace amp::kernels {

struct SumKernel {
    AMPSCOPE_KERNEL void run(std::int64_t begin, std::int64_t n, double* wide, const float* a, const float* b) {
        for (std::int64_t i = 0; i < n; ++i) wide[i] = static_cast<double>(a[begin + i]) + b[begin + i];
    }
};

struct WideProductKernel {
    AMPSCOPE_KERNEL void run(std::int64_t begin, std::int64_t n, double* wide, const float* in, double factor) {
        for (std::int64_t i = 0; i < n; ++i) wide[i] = in[begin + i] * factor;
    }
};

struct WideQuotientKernel {
    AMPSCOPE_KERNEL void run(std::int64_t begin, std::int64_t n, double* wide, const float* in, double divisor) {
        for (std::int64_t i = 0; i < n; ++i) wide[i] = in[begin + i] / divisor;
    }
};

/// The factor by which a norm is clipped, computed as torch's clip_grad_norm_ computes max_norm / (norm + 1e-6): the
/// reciprocal of a tensor, then a product, in FP32, each result rounded to the norm's format. A NaN stays one.
AMPSCOPE_INLINE float clip_factor(const FormatSpec& f, float norm, double max_norm) {
    const float sum = quantize(f, norm + 1e-6F), reciprocal = quantize(f, 1 / sum);
    const float factor = quantize(f, reciprocal * static_cast<float>(max_norm));
    return factor > 1 ? 1 : factor;
}

} // namespace amp::kernels

namespace amp::op {

template <class On>
void run(On& on, const AccumulateGradient& op) {
    const TensorId total = op.totals[static_cast<std::size_t>(on.context.replica)];
    if (on.context.micro_batch == 0) return copy(on, total, on.in(op.in));
    map(on, kernels::SumKernel{}, total, on.in(total), on.in(op.in));
}

template <class On>
void run(On& on, const Unscale& op) {
    const double scale = on.context.unscale_by;
    if (scale == 1) return;
    const float* const x = on.in(op.gradient);
    switch (op.rule) {
    case UnscaleRule::divide:
        return map(on, kernels::WideQuotientKernel{}, op.gradient, x, static_cast<double>(static_cast<float>(scale)));
    case UnscaleRule::reciprocal:
        return map(on, kernels::WideProductKernel{}, op.gradient, x,
                   static_cast<double>(static_cast<float>(1 / scale)));
    }
}

} // namespace amp::op

// Normalisation over a batch: statistics channel by channel, results element by element.
#pragma once

#include <ampscope/sim/backend/kernels/kernel.h>
#include <ampscope/sim/program/ops/batch_norm.h>

#include <cmath>

namespace amp::kernels {

/// The sum of a channel's numbers, x being the first.
AMPSCOPE_INLINE double channel_sum(const float* x, std::int64_t rows, std::int64_t channels) {
    return lane_sum(rows, [&](std::int64_t r) { return double{x[r * channels]}; });
}
/// The sum of (x - mean)^2 in a channel.
AMPSCOPE_INLINE double channel_squares(const float* x, std::int64_t rows, std::int64_t channels, double mean) {
    return lane_sum(rows, [&](std::int64_t r) {
        const double d = x[r * channels] - mean;
        return d * d;
    });
}

struct ChannelMeanKernel {
    AMPSCOPE_KERNEL void run(std::int64_t begin, std::int64_t n, double* wide, const float* in, std::int64_t rows,
                             std::int64_t channels) {
        for (std::int64_t c = 0; c < n; ++c)
            wide[c] = channel_sum(in + begin + c, rows, channels) / static_cast<double>(rows);
    }
};

struct ChannelInverseKernel {
    AMPSCOPE_KERNEL void run(std::int64_t begin, std::int64_t n, double* wide, const float* in, std::int64_t rows,
                             std::int64_t channels, double eps) {
        for (std::int64_t c = 0; c < n; ++c) {
            const float* const x = in + begin + c;
            const double count = static_cast<double>(rows), mean = channel_sum(x, rows, channels) / count;
            wide[c] = 1 / std::sqrt(channel_squares(x, rows, channels, mean) / count + eps);
        }
    }
};

struct RunningMeanKernel {
    AMPSCOPE_KERNEL void run(std::int64_t begin, std::int64_t n, double* wide, const float* running, const float* mean,
                             double momentum) {
        for (std::int64_t c = begin; c < begin + n; ++c)
            wide[c - begin] = (1 - momentum) * running[c] + momentum * mean[c];
    }
};

struct RunningVarianceKernel {
    AMPSCOPE_KERNEL void run(std::int64_t begin, std::int64_t n, double* wide, const float* running, const float* in,
                             std::int64_t rows, std::int64_t channels, double momentum) {
        for (std::int64_t c = 0; c < n; ++c) {
            const float* const x = in + begin + c;
            const double mean = channel_sum(x, rows, channels) / static_cast<double>(rows);
            const double variance = channel_squares(x, rows, channels, mean) / static_cast<double>(rows - 1);
            wide[c] = (1 - momentum) * running[begin + c] + momentum * variance;
        }
    }
};

struct CopyKernel {
    AMPSCOPE_KERNEL void run(std::int64_t begin, std::int64_t n, double* wide, const float* in) {
        for (std::int64_t i = 0; i < n; ++i) wide[i] = in[begin + i];
    }
};

struct InverseOfVarianceKernel {
    AMPSCOPE_KERNEL void run(std::int64_t begin, std::int64_t n, double* wide, const float* variance, double eps) {
        for (std::int64_t i = 0; i < n; ++i) wide[i] = 1 / std::sqrt(variance[begin + i] + eps);
    }
};

struct BatchNormKernel {
    AMPSCOPE_KERNEL void run(std::int64_t begin, std::int64_t n, double* wide, const float* in, const float* weight,
                             const float* bias, const float* mean, const float* inverse, std::int64_t channels) {
        for (std::int64_t i = 0; i < n; ++i) {
            const std::int64_t c = (begin + i) % channels;
            wide[i] = (static_cast<double>(in[begin + i]) - mean[c]) * inverse[c] * weight[c] + bias[c];
        }
    }
};

struct BiasGradientKernel {
    AMPSCOPE_KERNEL void run(std::int64_t begin, std::int64_t n, double* wide, const float* grad, std::int64_t rows,
                             std::int64_t channels) {
        for (std::int64_t c = 0; c < n; ++c) wide[c] = channel_sum(grad + begin + c, rows, channels);
    }
};

struct WeightGradientKernel {
    AMPSCOPE_KERNEL void run(std::int64_t begin, std::int64_t n, double* wide, const float* in, const float* grad,
                             const float* mean, const float* inverse, std::int64_t rows, std::int64_t channels) {
        for (std::int64_t c = begin; c < begin + n; ++c)
            wide[c - begin] = lane_sum(rows, [&](std::int64_t r) {
                const double y = (static_cast<double>(in[r * channels + c]) - mean[c]) * inverse[c];
                return grad[r * channels + c] * y;
            });
    }
};

struct BatchNormBackwardKernel {
    AMPSCOPE_KERNEL void run(std::int64_t begin, std::int64_t n, double* wide, const float* in, const float* grad,
                             const float* weight, const float* mean, const float* inverse, const float* grad_weight,
                             const float* grad_bias, std::int64_t rows, std::int64_t channels) {
        const auto count = static_cast<double>(rows);
        for (std::int64_t i = 0; i < n; ++i) {
            const std::int64_t c = (begin + i) % channels;
            const double y = (static_cast<double>(in[begin + i]) - mean[c]) * inverse[c];
            const double d = grad[begin + i] - grad_bias[c] / count - y * (grad_weight[c] / count);
            wide[i] = d * inverse[c] * weight[c];
        }
    }
};

} // namespace amp::kernels

namespace amp::op {

template <class On>
void run(On& on, const BatchNorm& op) {
    const std::int64_t channels = on.info(op.in).shape.back(), rows = on.info(op.in).count() / channels;
    const float* const in = on.in(op.in);
    if (on.context.training) {
        map(on, kernels::ChannelMeanKernel{}, op.mean, in, rows, channels);
        map(on, kernels::ChannelInverseKernel{}, op.inverse, in, rows, channels, op.eps);
        if (on.context.replica == 0) {
            map(on, kernels::RunningMeanKernel{}, op.running_mean, on.in(op.running_mean), on.in(op.mean), op.momentum);
            map(on, kernels::RunningVarianceKernel{}, op.running_variance, on.in(op.running_variance), in, rows,
                channels, op.momentum);
        }
    } else {
        map(on, kernels::CopyKernel{}, op.mean, on.in(op.running_mean));
        map(on, kernels::InverseOfVarianceKernel{}, op.inverse, on.in(op.running_variance), op.eps);
    }
    map(on, kernels::BatchNormKernel{}, op.out, in, on.in(op.weight), on.in(op.bias), on.in(op.mean), on.in(op.inverse),
        channels);
}

template <class On>
void run(On& on, const BatchNormBackward& op) {
    const std::int64_t channels = on.info(op.in).shape.back(), rows = on.info(op.in).count() / channels;
    const float *const in = on.in(op.in), *const grad = on.in(op.grad_out);
    const float *const mean = on.in(op.mean), *const inverse = on.in(op.inverse);
    map(on, kernels::BiasGradientKernel{}, op.grad_bias, grad, rows, channels);
    map(on, kernels::WeightGradientKernel{}, op.grad_weight, in, grad, mean, inverse, rows, channels);
    if (op.grad_in)
        map(on, kernels::BatchNormBackwardKernel{}, op.grad_in, in, grad, on.in(op.weight), mean, inverse,
            on.in(op.grad_weight), on.in(op.grad_bias), rows, channels);
}

} // namespace amp::op

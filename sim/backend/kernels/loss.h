// Losses and their gradients.
#pragma once

#include <ampscope/formats/scalar_math.h>
#include <ampscope/sim/backend/kernels/kernel.h>

namespace amp::kernels {

/// The logarithm of the sum of e^x over a row, as max + log(sum of e^(x - max)).
struct LogSum {
    double max = 0, sum = 0; ///< sum of e^(x - max)
};

struct LogSumKernel {
    AMPSCOPE_KERNEL void run(const float* x, std::int64_t n, double* wide, LogSum* result) {
        float max = x[0];
        for (std::int64_t i = 1; i < n; ++i) max = x[i] > max ? x[i] : max;
        for (std::int64_t i = 0; i < n; ++i) wide[i] = math::exp(static_cast<double>(x[i]) - max);
        *result = {max, lane_sum(n, [&](std::int64_t i) { return wide[i]; })};
    }
};

struct CrossEntropyBackwardKernel {
    AMPSCOPE_KERNEL void run(std::int64_t row, std::int64_t n, double* wide, const float* logits, const float* targets,
                             double factor) {
        LogSum s;
        LogSumKernel::run(logits + row * n, n, wide, &s);
        const auto target = static_cast<std::int64_t>(targets[row]);
        for (std::int64_t i = 0; i < n; ++i) wide[i] /= s.sum;
        if (target >= 0) wide[target] -= 1;
        for (std::int64_t i = 0; i < n; ++i) wide[i] = target >= 0 ? wide[i] * factor : 0;
    }
};

struct MseBackwardKernel {
    AMPSCOPE_KERNEL void run(std::int64_t begin, std::int64_t n, double* wide, const float* in, const float* targets,
                             double factor) {
        for (std::int64_t i = 0; i < n; ++i)
            wide[i] = (static_cast<double>(in[begin + i]) - targets[begin + i]) * factor;
    }
};

} // namespace amp::kernels

// Losses and their gradients.
#pragma once

#include <ampscope/formats/scalar_math.h>
#include <ampscope/sim/backend/kernels/kernel.h>
#include <ampscope/sim/program/ops/loss.h>

namespace amp::kernels {

/// The logarithm of the sum of e^x over a row, as max + log(sum of e^(x - max)).
struct LogSum {
    double max = 0, sum = 0; ///< sum of e^(x - max)
};

struct LogSumKernel {
    AMPSCOPE_KERNEL void run(const float* x, std::int64_t n, double* wide, LogSum* result) {
        const float max = greatest(x, n);
        for (std::int64_t i = 0; i < n; ++i) wide[i] = math::exp(static_cast<double>(x[i]) - max);
        *result = {max, lane_sum(n, [&](std::int64_t i) { return wide[i]; })};
    }
};

/// The terms that a run has: in training all, in evaluation those that say so.
AMPSCOPE_INLINE op::LossTerms terms_now(const op::LossTerms& terms, bool training) {
    return training || terms.in_evaluation ? terms : op::LossTerms{};
}

/// The loss of a row.
struct CrossEntropyKernel {
    AMPSCOPE_KERNEL void run(const float* x, std::int64_t n, double* wide, std::int64_t target, op::LossTerms terms,
                             double* loss) {
        LogSum s;
        LogSumKernel::run(x, n, wide, &s);
        const double log_z = s.max + math::log(s.sum);
        double wanted = x[target];
        if (terms.label_smoothing != 0) { // 0 times an infinite logit is NaN
            const double sum = lane_sum(n, [&](std::int64_t i) { return static_cast<double>(x[i]); });
            wanted = (1 - terms.label_smoothing) * wanted + terms.label_smoothing * (sum / static_cast<double>(n));
        }
        *loss = log_z - wanted;
        if (terms.z_loss != 0) *loss += terms.z_loss * (log_z * log_z);
    }
};

struct CrossEntropyBackwardKernel {
    AMPSCOPE_KERNEL void run(std::int64_t row, std::int64_t n, double* wide, const float* logits, const float* targets,
                             double factor, op::LossTerms terms) {
        LogSum s;
        LogSumKernel::run(logits + row * n, n, wide, &s);
        const auto target = static_cast<std::int64_t>(targets[row]);
        for (std::int64_t i = 0; i < n; ++i) wide[i] /= s.sum;
        if (terms.z_loss != 0) {
            const double growth = 1 + 2 * terms.z_loss * (s.max + math::log(s.sum));
            for (std::int64_t i = 0; i < n; ++i) wide[i] *= growth;
        }
        if (terms.label_smoothing != 0) {
            const double share = terms.label_smoothing / static_cast<double>(n);
            for (std::int64_t i = 0; i < n; ++i) wide[i] -= share;
        }
        if (target >= 0) wide[target] -= 1 - terms.label_smoothing;
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

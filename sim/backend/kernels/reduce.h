// The gradient of a sum.
#pragma once

#include <ampscope/sim/backend/kernels/kernel.h>

namespace amp::kernels {

struct SpreadKernel {
    AMPSCOPE_KERNEL void run(std::int64_t begin, std::int64_t n, double* wide, const float* grad, std::int64_t period,
                             double factor) {
        for (std::int64_t i = 0; i < n; ++i) wide[i] = grad[(begin + i) % period] * factor;
    }
};

} // namespace amp::kernels

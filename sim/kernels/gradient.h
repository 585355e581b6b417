// What happens to gradients, element by element.
#pragma once

#include <ampscope/sim/kernels/kernel.h>

namespace amp::kernels {

struct SumKernel {
    AMPSCOPE_KERNEL void run(std::int64_t begin, std::int64_t n, double* wide, const float* a, const float* b) {
        for (std::int64_t i = 0; i < n; ++i) wide[i] = static_cast<double>(a[begin + i]) + b[begin + i];
    }
};

struct ProductKernel {
    AMPSCOPE_KERNEL void run(std::int64_t begin, std::int64_t n, double* wide, const float* in, double factor) {
        for (std::int64_t i = 0; i < n; ++i) wide[i] = in[begin + i] * factor;
    }
};

struct QuotientKernel {
    AMPSCOPE_KERNEL void run(std::int64_t begin, std::int64_t n, double* wide, const float* in, double divisor) {
        for (std::int64_t i = 0; i < n; ++i) wide[i] = in[begin + i] / divisor;
    }
};

} // namespace amp::kernels

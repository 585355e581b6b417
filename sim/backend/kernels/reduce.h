// The gradient of a sum, element by element.
#pragma once

#include <ampscope/sim/backend/kernels/kernel.h>
#include <ampscope/sim/program/ops/reduce.h>

namespace amp::kernels {

struct SpreadKernel {
    AMPSCOPE_KERNEL void run(std::int64_t begin, std::int64_t n, double* wide, const float* grad, std::int64_t period,
                             double factor) {
        for (std::int64_t i = 0; i < n; ++i) wide[i] = grad[(begin + i) % period] * factor;
    }
};

} // namespace amp::kernels

namespace amp::op {

template <class On>
void run(On& on, const ReduceBackward& op) {
    map(on, kernels::SpreadKernel{}, op.grad_in, on.in(op.grad_out), on.info(op.grad_out).count(), op.factor);
}

} // namespace amp::op

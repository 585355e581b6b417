// Rotary positions, row by row.
#pragma once

#include <ampscope/formats/scalar_math_trig.h>
#include <ampscope/sim/backend/kernels/kernel.h>
#include <ampscope/sim/base/tensor.h>
#include <ampscope/sim/program/ops/rope.h>

namespace amp::kernels {

struct RopeKernel {
    AMPSCOPE_KERNEL void run(std::int64_t row, std::int64_t width, double* wide, const float* in, std::int64_t tokens,
                             double log_theta, double sign) {
        const float* const x = in + row * width;
        const std::int64_t half = width / 2;
        const auto position = static_cast<float>(row % tokens);
        for (std::int64_t i = 0; i < half; ++i) {
            const double power = -2 * static_cast<double>(i) / static_cast<double>(width) * log_theta;
            const float angle = position * static_cast<float>(math::exp(power));
            const math::SinCos turn = math::sin_cos(angle);
            wide[i] = x[i] * turn.cos - sign * x[i + half] * turn.sin;
            wide[i + half] = x[i + half] * turn.cos + sign * x[i] * turn.sin;
        }
    }
};

} // namespace amp::kernels

namespace amp::op {

template <class On>
void run(On& on, const Rope& op) {
    const Shape& shape = on.info(op.out).shape;
    map_rows(on, kernels::RopeKernel{}, op.out, on.in(op.in), shape[shape.size() - 2], math::log(op.theta),
             op.inverse ? -1.0 : 1.0);
}

} // namespace amp::op

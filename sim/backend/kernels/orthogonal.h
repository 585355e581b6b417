// Element-wise ops of optimizers that make a matrix orthogonal.
#pragma once

#include <ampscope/formats/codec.h>
#include <ampscope/sim/backend/kernels/kernel.h>
#include <ampscope/sim/backend/kernels/update_loops.h>
#include <ampscope/sim/program/ops/orthogonal.h>

#include <cmath>
#include <limits>

namespace amp::kernels {

template <bool contract>
struct LerpOpKernel {
    AMPSCOPE_KERNEL void run(std::int64_t begin, std::int64_t n, double* wide, const float* a, const float* b,
                             float w) {
        for (std::int64_t i = 0; i < n; ++i) wide[i] = lerp<contract, false>(a[begin + i], b[begin + i], w);
    }
};

struct NormalizeKernel {
    AMPSCOPE_KERNEL void run(std::int64_t begin, std::int64_t n, double* wide, const float* in, const float* norm,
                             float least, float infinite_from, FormatSpec format, bool adds) {
        const float bounded = *norm < least ? least : *norm; // a NaN stays
        const float known = adds ? quantize(format, *norm + least) : bounded;
        const float divisor = known >= infinite_from ? std::numeric_limits<float>::infinity() : known;
        for (std::int64_t i = 0; i < n; ++i) wide[i] = in[begin + i] / divisor;
    }
};

struct AddScaledOpKernel {
    AMPSCOPE_KERNEL void run(std::int64_t begin, std::int64_t n, double* wide, const float* product,
                             const float* addend, float alpha, float beta) {
        for (std::int64_t i = 0; i < n; ++i) {
            const float scaled = alpha * product[begin + i], added = beta * addend[begin + i];
            wide[i] = scaled + added;
        }
    }
};

} // namespace amp::kernels

namespace amp::op {

template <class On>
void run(On& on, const Lerp& op) {
    const double raised = op.power == 0 ? 1 : std::pow(static_cast<double>(on.context.update), op.power);
    const auto weight = static_cast<float>(op.weight * raised);
    if (op.contract) map(on, kernels::LerpOpKernel<true>{}, op.out, on.in(op.a), on.in(op.b), weight);
    else map(on, kernels::LerpOpKernel<false>{}, op.out, on.in(op.a), on.in(op.b), weight);
}

template <class On>
void run(On& on, const Normalize& op) {
    const FormatSpec& f = on.info(op.norm).format;
    const float least = op.adds_least ? static_cast<float>(op.least) : quantize(f, op.least);
    const float infinite_from = op.overflows ? 0x1p64F : std::numeric_limits<float>::infinity();
    map(on, kernels::NormalizeKernel{}, op.out, on.in(op.in), on.in(op.norm), least, infinite_from, FormatSpec{f},
        op.adds_least);
}

template <class On>
void run(On& on, const AddScaled& op) {
    map(on, kernels::AddScaledOpKernel{}, op.out, on.in(op.product), on.in(op.addend), static_cast<float>(op.alpha),
        static_cast<float>(op.beta));
}

} // namespace amp::op

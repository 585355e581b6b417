// Element-wise ops: sum, product, scaling, dropout.
#pragma once

#include <ampscope/formats/random.h>
#include <ampscope/sim/backend/kernels/kernel.h>
#include <ampscope/sim/program/ops/elementwise.h>

#include <cmath>

namespace amp::kernels {

/// a + b or a * b; b has `period` elements and is repeated.
template <bool multiplies>
struct BinaryKernel {
    AMPSCOPE_KERNEL void run(std::int64_t begin, std::int64_t n, double* wide, const float* a, const float* b,
                             std::int64_t period) {
        for (std::int64_t i = 0; i < n;) {
            const std::int64_t j = (begin + i) % period, m = period - j < n - i ? period - j : n - i;
            const float *x = a + begin + i, *y = b + j;
            double* const to = wide + i;
            for (std::int64_t l = 0; l < m; ++l)
                to[l] = multiplies ? static_cast<double>(x[l]) * y[l] : static_cast<double>(x[l]) + y[l];
            i += m;
        }
    }
};

struct ScaleKernel {
    AMPSCOPE_KERNEL void run(std::int64_t begin, std::int64_t n, double* wide, const float* in, double factor) {
        for (std::int64_t i = 0; i < n; ++i) wide[i] = in[begin + i] * factor;
    }
};

struct SingleScaleKernel {
    AMPSCOPE_KERNEL void run(std::int64_t begin, std::int64_t n, double* wide, const float* in, float factor) {
        for (std::int64_t i = 0; i < n; ++i) wide[i] = in[begin + i] * factor;
    }
};

struct DropoutKernel {
    AMPSCOPE_KERNEL void run(std::int64_t begin, std::int64_t n, double* wide, const float* in, std::uint64_t threshold,
                             double factor, RandomKey key, std::uint64_t first) {
        for (std::int64_t i = 0; i < n; ++i) {
            const std::uint64_t index = first + static_cast<std::uint64_t>(begin + i);
            wide[i] = key.word(index) >= threshold ? in[begin + i] * factor : 0;
        }
    }
};

} // namespace amp::kernels

namespace amp::op {

template <class On>
void run(On& on, const Add& op) {
    map(on, kernels::BinaryKernel<false>{}, op.out, on.in(op.a), on.in(op.b), on.info(op.b).count());
}

template <class On>
void run(On& on, const Mul& op) {
    map(on, kernels::BinaryKernel<true>{}, op.out, on.in(op.a), on.in(op.b), on.info(op.b).count());
}

template <class On>
void run(On& on, const Scale& op) {
    if (op.in_single) map(on, kernels::SingleScaleKernel{}, op.out, on.in(op.in), static_cast<float>(op.factor));
    else map(on, kernels::ScaleKernel{}, op.out, on.in(op.in), op.factor);
}

template <class On>
void run(On& on, const Cast& op) {
    copy(on, op.out, on.in(op.in));
}

template <class On>
void run(On& on, const Dropout& op) {
    const auto& c = on.context;
    const double probability = c.training ? op.probability : 0;
    map(on, kernels::DropoutKernel{}, op.out, on.in(op.in), static_cast<std::uint64_t>(std::ceil(probability * 0x1p32)),
        1 / (1 - probability), RandomKey{.seed = c.seed, .stream = op.stream, .step = c.step},
        c.part() * static_cast<std::uint64_t>(on.info(op.out).count()));
}

} // namespace amp::op

// Sums of products on a device, by the definitions of formats/dot.h.
#pragma once

#include <ampscope/formats/dot.h>
#include <ampscope/sim/backend/kernels/kernel.h>

#include <cmath>

namespace amp::cuda {

/// A chain of FP32 fused multiply-adds, as the device has them.
AMPSCOPE_DEVICE inline float fp32_chain(std::span<const float> x, std::span<const float> y) {
    float sum = 0;
    for (std::size_t l = 0; l < x.size(); ++l) sum = std::fma(x[l], y[l], sum);
    return sum;
}

/// x y for numbers that lie one after the other, of formats in which the accumulator reads them. Not inlined, so that a
/// kernel with several of them has it once.
AMPSCOPE_CALL inline float sum_as_read(const Accumulator& acc, bool is_chain, const FormatSpec& fx,
                                       const FormatSpec& fy, const float* x, const float* y, std::int64_t n) {
    const std::span<const float> a(x, static_cast<std::size_t>(n)), b(y, static_cast<std::size_t>(n));
    return kernels::named(is_chain ? fp32_chain(a, b) : dot_as_read(acc, fx, fy, a, b, 0));
}

/// An accumulator and its operands' formats.
struct SumOfProducts {
    Accumulator accumulate;
    FormatSpec x_read, y_read;
    bool is_chain;

    SumOfProducts(const Accumulator& acc, const FormatSpec& x, const FormatSpec& y)
        : accumulate(acc), x_read(acc.reads(x)), y_read(acc.reads(y)), is_chain(acc.is_fp32_chain()) {}
    AMPSCOPE_DEVICE float operator()(const float* x, const float* y, std::int64_t n) const {
        return sum_as_read(accumulate, is_chain, x_read, y_read, x, y, n);
    }
};

} // namespace amp::cuda

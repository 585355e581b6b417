// A fused multiply-add for processors that have none.
#pragma once

#include <ampscope/sim/backend/kernels/kernel.h>

#include <bit>

namespace amp::detail {

/// The rounding error of x + y: x + y = sum + error, exactly (Knuth's two-sum). NaN if an infinity takes part.
template <class T>
AMPSCOPE_INLINE T sum_error(T x, T y, T sum) {
    const T part = sum - x;
    return (x - (sum - part)) + (y - part);
}

/// x + y rounded to odd: rounding this to fewer bits gives the same as rounding the exact sum (Boldo, Melquiond:
/// "Emulation of a FMA and correctly rounded sums: proved algorithms using rounding to odd", IEEE Transactions on
/// Computers 57, 2008).
AMPSCOPE_INLINE double add_to_odd(double x, double y) {
    const double sum = x + y, error = sum_error(x, y, sum);
    const auto bits = std::bit_cast<std::uint64_t>(sum);
    const bool inexact = (bits & 1) == 0 && (error < 0 || error > 0);
    const bool too_large = (error < 0) != (sum < 0); // in magnitude
    return std::bit_cast<double>(bits + (inexact ? (too_large ? ~std::uint64_t{0} : 1) : 0));
}

/// a * b + c rounded to odd in double, where the product is exact.
AMPSCOPE_INLINE double fma_to_odd(float a, float b, float c) { return add_to_odd(static_cast<double>(a) * b, c); }

/// fma(a, b, c), correctly rounded to nearest-even.
AMPSCOPE_INLINE float fma_in_double(float a, float b, float c) { return static_cast<float>(fma_to_odd(a, b, c)); }

} // namespace amp::detail

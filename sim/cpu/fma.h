// A fused multiply-add for processors that have none.
#pragma once

#include <bit>
#include <cstdint>

namespace amp::detail {

/// a * b + c rounded to odd in double, which rounding to fewer bits cannot tell from the exact sum: the product is
/// exact in double (Boldo, Melquiond: "Emulation of a FMA and correctly rounded sums: proved algorithms using rounding
/// to odd", IEEE Transactions on Computers 57, 2008).
[[gnu::always_inline]] inline double fma_to_odd(float a, float b, float c) {
    const double product = static_cast<double>(a) * b, addend = c;
    const double sum = product + addend;
    const double part = sum - product;
    const double error = (product - (sum - part)) + (addend - part); // Knuth's two-sum: exact; NaN beside infinities
    const auto bits = std::bit_cast<std::uint64_t>(sum);
    const bool inexact = (bits & 1) == 0 && (error < 0 || error > 0);
    const bool too_large = (error < 0) != (sum < 0); // in magnitude
    return std::bit_cast<double>(bits + (inexact ? (too_large ? ~std::uint64_t{0} : 1) : 0));
}

/// fma(a, b, c), correctly rounded to nearest-even.
[[gnu::always_inline]] inline float fma_in_double(float a, float b, float c) {
    return static_cast<float>(fma_to_odd(a, b, c));
}

} // namespace amp::detail

// SiLU and its derivative, x / (1 + e^-x), with the same bits everywhere (see formats/scalar_math.h).
//
// Operands are FP32 values held in a double. Relative errors are below 2^-48 (tests/sweep_scalar_math: all FP32
// operands). Coefficients: tests/data/mpmath/gelu.py.
#pragma once

#include <ampscope/formats/scalar_math_gelu.h>

namespace amp::math {

/// x / (1 + e^-x) (S. Elfwing et al., "Sigmoid-weighted linear units", 2018; also called Swish). NaN for -infinity, as
/// in torch.
[[gnu::always_inline]] constexpr double silu(double x) {
    return x != x ? detail::nan : detail::times_cdf(x, sigmoid(x));
}

/// The derivative of silu: s + x s (1 - s), where s = 1 / (1 + e^-x); its limits 1 and -0 at infinities (torch: NaN).
[[gnu::always_inline]] constexpr double silu_derivative(double x) {
    constexpr double zero = -0x1.474973c84120bp+0;
    constexpr double q[] = {0x1.be1410460527fp-3,   0x1.2c563458cc0adp-3,   0x1.353eb573ca46ap-6,
                            -0x1.f2d0e32bc298cp-7,  -0x1.b0f82c499488bp-8,  0x1.098e92b8d2724p-13,
                            0x1.a2a7caff10db7p-11,  0x1.8574d1421971bp-13,  -0x1.5723b632642fep-15,
                            -0x1.f2d8a7865a96dp-16, -0x1.8ab8bc2b9df34p-19, 0x1.3aecd4a3d4ac5p-19,
                            0x1.c2e1da8a2b944p-21,  -0x1.28d97ffe5701ap-25};
    const double t = detail::clamp(x, -700, 700), power = math::exp(t < 0 ? t : -t); // beyond it the result is -0 or 1
    const double larger = 1 / (1 + power), smaller = power * larger;
    if (x != x) return detail::nan;
    if (x < -700) return -0.0;
    if (detail::is_near(x, zero)) return detail::near_zero(x, zero, -0x1.f8d74bc9ac154p-54, q);
    return t < 0 ? smaller * (1 + t * larger) : larger * (1 + t * smaller);
}

} // namespace amp::math

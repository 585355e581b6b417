// Sine and cosine with the same bits everywhere (see formats/scalar_math.h).
//
// For FP32 operands from 0 to 2^24, held in a double; relative errors are below 2^-48 (tests/test_scalar_math.cpp).
#pragma once

#include <ampscope/formats/scalar_math.h>

namespace amp::math {

struct SinCos {
    double sin = 0, cos = 1;
};

/// sin x and cos x for 0 <= x <= 2^24.
[[gnu::always_inline]] constexpr SinCos sin_cos(double x) {
    // 1. x = k pi / 2 + r with |r| <= pi / 4. pi / 2 has three parts; the first two have 27 bits, so that their
    //    products with k are exact.
    constexpr double two_over_pi = 0x1.45f306dc9c883p-1, shifter = 0x1.8p52;
    constexpr double high = 0x1.921fb54p+0, middle = 0x1.10b461p-30, low = 0x1.a62633145c06ep-58;
    const double shifted = x * two_over_pi + shifter, k = shifted - shifter;
    const double r = ((x - k * high) - k * middle) - k * low, z = r * r;
    // 2. Their series: the first terms left out are below 2^-58 of the sums.
    constexpr double odd[] = {-1.0 / 6,        1.0 / 120,         -1.0 / 5040,           1.0 / 362880,
                              -1.0 / 39916800, 1.0 / 6227020800., -1.0 / 1307674368000., 1.0 / 355687428096000.};
    constexpr double even[] = {-1.0 / 2,       1.0 / 24,         -1.0 / 720,          1.0 / 40320,
                               -1.0 / 3628800, 1.0 / 479001600., -1.0 / 87178291200., 1.0 / 20922789888000.};
    const double s = r + r * (z * detail::polynomial(z, odd)), c = 1 + z * detail::polynomial(z, even);
    // 3. The quarter of the circle is k mod 4.
    const auto quarter = std::bit_cast<std::uint64_t>(shifted) & 3;
    const double first = quarter % 2 == 0 ? s : c, second = quarter % 2 == 0 ? c : s;
    return {quarter < 2 ? first : -first, quarter == 0 || quarter == 3 ? second : -second};
}

} // namespace amp::math

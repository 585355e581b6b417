// What roundings did to numbers: counts of every kind of number, of every length.
#include <ampscope/sim/backend/counts.h>

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <limits>
#include <vector>

using namespace amp;

namespace {

template <class T>
void check_counts() {
    constexpr T infinity = std::numeric_limits<T>::infinity(), nan = std::numeric_limits<T>::quiet_NaN(),
                least = std::numeric_limits<T>::denorm_min(), most = std::numeric_limits<T>::max();
    constexpr float high = std::numeric_limits<float>::infinity();
    constexpr std::array<T, 11> before = {0, T(-0.0), 1, -1, least, -least, most, -most, infinity, -infinity, nan};
    constexpr std::array<float, 8> after = {0,
                                            -0.0F,
                                            1,
                                            -0x1p-149F,
                                            std::numeric_limits<float>::max(),
                                            high,
                                            -high,
                                            std::numeric_limits<float>::quiet_NaN()};
    std::vector<T> x;
    std::vector<float> y;
    RoundingCounts want;
    for (std::size_t i = 0; i < 300; ++i) { // 11 and 8 have no common divisor: each meets each
        CHECK(count_rounding(x.data(), y.data(), static_cast<std::int64_t>(i)) == want);
        x.push_back(before[i % before.size()]);
        y.push_back(after[i % after.size()]);
        ++want.elements;
        if (x[i] == 0 || !std::isfinite(x[i])) continue;
        ++want.nonzero;
        want.underflow += y[i] == 0;
        want.overflow += !std::isfinite(y[i]);
    }
}

} // namespace

TEST_CASE("what became zero, infinite or NaN is counted, of FP32 and FP64") {
    check_counts<float>();
    check_counts<double>();
}

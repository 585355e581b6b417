// What a cast to nearest even makes of single numbers, by thresholds from the standards and in double: an oracle that
// shares no code with formats/ and no histogram.
#pragma once

#include <cmath>
#include <map>
#include <string>
#include <vector>

namespace amp::test {

/// Where results change when rounded to nearest even: magnitudes before rounding, from the standards, ties included.
struct Edges {
    double last_underflow;  ///< the largest magnitude that becomes zero
    double first_normal;    ///< the smallest that becomes a normal value
    double last_finite;     ///< the largest magnitude below which none overflows
    bool last_finite_stays; ///< whether `last_finite` itself does not overflow
};

inline const std::map<std::string, Edges> edges = {{"fp16", {0x1p-25, 0x1p-14 - 0x1p-25, 65520, false}},
                                                   {"bf16", {0x1p-134, 0x1p-126 - 0x1p-134, 0x1.ffp127, false}},
                                                   {"e4m3", {0x1p-10, 0x1p-6 - 0x1p-10, 464, true}},
                                                   {"e5m2", {0x1p-17, 0x1p-14 - 0x1p-17, 61440, false}}};

struct Counted {
    double underflow = 0, subnormal = 0, normal = 0, overflow = 0;
};

inline Counted count(const std::vector<float>& values, const std::string& name, double scale) {
    const Edges& e = edges.at(name);
    Counted n;
    for (const float x : values) {
        const double y = std::abs(static_cast<double>(x)) * scale; // exact: the exponents stay far from FP64's ends
        if (y == 0 || !std::isfinite(y)) continue;
        if (y <= e.last_underflow) ++n.underflow;
        else if (y < e.first_normal) ++n.subnormal;
        else if (e.last_finite_stays ? y <= e.last_finite : y < e.last_finite) ++n.normal;
        else ++n.overflow;
    }
    return n;
}

} // namespace amp::test

// What tests of the findings on Adam record and ask.
#pragma once

#include "recorded_files.h"

#include <ampscope/sim/findings/adam.h>

#include <algorithm>
#include <cmath>

namespace amp::test::adam {

inline constexpr int steps = 12, elements = 200; ///< of runs

inline AdamOptions asked(std::vector<double> eps = {1e-2, 1e-4, 1e-6, 1e-8}) {
    AdamOptions options = standard_adam_options();
    options.eps = std::move(eps);
    return options;
}

inline std::uint64_t below(const std::vector<double>& roots, double eps) {
    return static_cast<std::uint64_t>(std::ranges::count_if(roots, [&](double x) { return x < eps; }));
}

/// Gradients of a parameter in one step, spread over sixty binades and different in every step.
inline std::vector<float> gradients(int step, int count) {
    std::vector<float> values;
    for (int i = 0; i < count; ++i)
        values.push_back(std::ldexp(1 + static_cast<float>((7 * i + 3 * step) % 16) / 16, -(i * 11 + step) % 60));
    return values;
}

inline std::string step_name(int step) {
    std::string digits = std::to_string(step);
    return "step_" + std::string(6 - digits.size(), '0') + digits + ".safetensors";
}

} // namespace amp::test::adam

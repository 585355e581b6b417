// The scales of casts: those of blocks, and those of delayed scaling.
#pragma once

#include <ampscope/formats/block.h>
#include <ampscope/sim/backend/kernels/kernel.h>
#include <ampscope/sim/program/ops/quantize.h>

#include <bit>
#include <cmath>

namespace amp::kernels {

AMPSCOPE_INLINE bool is_infinite(float x) { return x == x && !is_finite(x); }

/// The encode scale that follows from the history's amax; see DelayedRule.
AMPSCOPE_INLINE float next_scale(const op::DelayedRule& rule, float amax, float old) {
    if (amax == 0 || amax != amax) return old;
    if (rule.ms_amp) {
        if (is_infinite(amax)) return 1 / old;
        return ldexpf(ms_amp_encode(rule.max, amax), -rule.margin);
    }
    if (is_infinite(amax)) return old;
    const float wanted = ldexpf(rule.max, -rule.margin) / amax;
    return is_infinite(wanted) ? largest_float : wanted;
}

/// The index of this replica's scale (and row of the history), and the length of a history.
struct DelayedState {
    std::int64_t row, length;
};
template <class Backend>
DelayedState delayed_state(const Backend& backend, const op::Quantize& op) {
    const std::int64_t rows = backend.info(op.delayed).count();
    return {.row = rows > 1 ? backend.context.replica : 0, .length = backend.info(op.history).count() / rows};
}

/// The encode scale of a cast with delayed scaling. Records the amax of this step in the history.
AMPSCOPE_INLINE BlockScale delayed_scale(const op::DelayedRule& rule, float amax, bool training, float* history,
                                         std::int64_t length, float& scale) {
    bool first = rule.ms_amp && scale == 1;
    for (std::int64_t i = 0; first && i < length; ++i) first = history[i] == 0;
    if (first) scale = next_scale(rule, amax, scale);
    if (training && amax > history[0]) history[0] = amax;
    return {.encode = scale, .decode = 1 / scale};
}

/// Ends a step of delayed scaling; see UpdateScale.
AMPSCOPE_INLINE void update_scale(const op::DelayedRule& rule, bool most_recent, float* history, std::int64_t length,
                                  float& scale) {
    const float newest = history[0];
    if (newest == 0) return;
    float amax = newest;
    for (std::int64_t i = 1; !most_recent && i < length; ++i) amax = history[i] > amax ? history[i] : amax;
    scale = next_scale(rule, amax, scale);
    for (std::int64_t i = 1; i < length; ++i) history[i - 1] = history[i];
    history[length - 1] = newest;
    history[0] = 0;
}

/// The factor of row i of a group in row j of its random Hadamard transform.
AMPSCOPE_INLINE double hadamard_factor(std::int64_t i, std::int64_t j) {
    constexpr std::array<int, op::Hadamard::group> signs = op::Hadamard::signs;
    const bool negative = (std::popcount(static_cast<std::uint64_t>(i & j)) & 1) != 0;
    return 0.25 * signs[static_cast<std::size_t>(i)] * (negative ? -1 : 1);
}

/// Row j of the random Hadamard transform of a group of rows, in double in the order of i.
AMPSCOPE_INLINE void hadamard_row(const float* group, std::int64_t columns, std::int64_t j, double* out) {
    for (std::int64_t c = 0; c < columns; ++c) out[c] = 0;
    for (std::int64_t i = 0; i < op::Hadamard::group; ++i) {
        const double factor = hadamard_factor(i, j);
        const float* const from = group + i * columns;
        for (std::int64_t c = 0; c < columns; ++c) out[c] += factor * from[c];
    }
}

} // namespace amp::kernels

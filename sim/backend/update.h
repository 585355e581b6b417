// The update of a weight: one step of an optimizer, in the order of operations of those who wrote it.
#pragma once

#include <ampscope/formats/random.h>
#include <ampscope/sim/optim/optimizer.h>

#include <span>

namespace amp {

/// What varies from step to step.
struct UpdateStep {
    std::int64_t t = 1; ///< the number of this update, from 1: skipped steps do not count
    double learning_rate = 1e-3;
    RandomKey key{}; ///< of stochastic rounding; an element's index is its position
};

/// One parameter and what belongs to it: spans of equal length, those that the optimizer has no use for empty. Values
/// lie in their formats; gradients in any.
struct ParameterState {
    FormatSpec weight_format, m_format, v_format;
    std::span<float> weight;
    std::span<const float> gradient;
    std::span<float> m;            ///< Adam's first moment, SGD's momentum
    std::span<float> v;            ///< Adam's second moment
    std::span<float> compensation; ///< Kahan's, in the weight's format
    ScaledState scaled{};
    UpdateRounding rounding = UpdateRounding::nearest; ///< how a new weight gets into weight_format
};

struct UpdateCounts {
    std::int64_t lost = 0;    ///< weights that stay as they were although their gradient is not zero
    std::int64_t changed = 0; ///< weights that change
    std::int64_t nonfinite = 0;

    UpdateCounts& operator+=(const UpdateCounts& other);
};

/// One step. A NaN is 0x7fc00000. Every result is that of single correctly rounded operations in a stated order, so it
/// does not depend on compiler or vector width; 1 - beta^t is FP64, as in Python.
UpdateCounts update(const OptimizerOptions& options, const UpdateStep& step, const ParameterState& state);

/// x rounded to the format under the scale that ScaleRule::ms_amp makes of its largest magnitude (NaN are passed over),
/// and back: what MS-AMP keeps of a tensor. FP8 saturates.
void keep_scaled(const FormatSpec& format, std::span<float> x);

} // namespace amp

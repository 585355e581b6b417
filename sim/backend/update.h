// One step of an optimizer on a parameter, in the order of operations of the optimizer's authors.
#pragma once

#include <ampscope/formats/random.h>
#include <ampscope/sim/optim/optimizer.h>

#include <span>

namespace amp {

/// What varies from step to step.
struct UpdateStep {
    std::int64_t t = 1; ///< number of this update, from 1; skipped steps do not count
    double learning_rate = 1e-3;
    double rate_factor = 1; ///< Muon's, of the step but not of the decay: rate_factor() of optimizer.h
    RandomKey key{};        ///< key of stochastic rounding; an element's index is its position
    /// Adam's m and v are already those of this step, as they are after it: only the weights are to change. Gradients
    /// are not looked at.
    bool has_moments = false;
};

/// One parameter with its gradient and optimizer state: spans of equal length; those that the optimizer does not use
/// are empty. Elements are values of the formats given; gradients may be of any format.
struct ParameterState {
    FormatSpec weight_format, m_format, v_format;
    std::span<float> weight;
    std::span<const float> gradient;
    std::span<float> m;            ///< Adam's first moment, SGD's momentum
    std::span<float> v;            ///< Adam's second moment
    std::span<float> compensation; ///< Kahan's compensation, in the weight's format
    ScaledState scaled{};
    UpdateRounding rounding = UpdateRounding::nearest; ///< how new weights are rounded to weight_format
    std::uint8_t random_bits = 32;                     ///< stochastic rounding draws so many for each weight
    /// Adafactor's: the norms of the weight before the step and of `gradient`, which is the direction of the step. On
    /// the backend's memory, as the spans are.
    const float *weight_norm = nullptr, *direction_norm = nullptr;
};

struct UpdateCounts {
    std::int64_t lost = 0;    ///< weights that do not change although their gradient is not zero
    std::int64_t changed = 0; ///< weights that change
    std::int64_t nonfinite = 0;

    UpdateCounts& operator+=(const UpdateCounts& other);
};

/// Makes one step. Every NaN is 0x7fc00000. Results follow from single correctly rounded operations in a stated order,
/// so they do not depend on compiler or vector width; 1 - beta^t is computed in FP64, as in Python. Throws
/// std::invalid_argument for Adafactor without norms.
UpdateCounts update(const OptimizerOptions& options, const UpdateStep& step, const ParameterState& state);

/// Rounds x to the format under its scales and back, which is what an optimizer's next step reads of the tensor. One
/// scale for all of it is MS-AMP's: the one that ScaleRule::ms_amp derives from the largest magnitude of x (NaNs are
/// ignored), and FP8 saturates. Blocks: value_in_block() of kernels/scaled_state.h; bitsandbytes' last may be shorter.
/// `contract`: a table is the one that PyTorch's kernels for AVX2 make, see code_numbers().
void keep_scaled(const ScaledFormat& format, std::span<float> x, bool contract = false);

} // namespace amp

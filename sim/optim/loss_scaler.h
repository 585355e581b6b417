// The loss scaling of all frameworks as one pure state machine: each framework is a row of options.
//
//     const LossScalerOptions& options = loss_scaler("torch").options;
//     LossScalerState state = initial_state(options);
//     ... backward from loss * state.scale; found_inf: any gradient not finite ...
//     const LossScalerUpdate u = update_scale(options, state, found_inf);
//     if (u.verdict == ScalerVerdict::step) ... step with unscale(options, u.unscale_by, gradient) ...
//     state = u.state;
//
// If there are several optimizers or replicas, the caller combines their non-finite gradients: found_inf is true if any
// of them has one, as in every framework.
//
// Versions read: PyTorch torch/amp/grad_scaler.py, AmpKernels.cu and AmpGradScalerKernels.cpp (2026), FSDP
// sharded_grad_scaler.py, Apex apex/amp/scaler.py (last before its removal) and csrc/update_scale_hysteresis.cu,
// DeepSpeed 2025-02, Megatron-LM core 2026-08, Keras 3 2026-08, Keras 2.15, jmp 260e5ba0.
#pragma once

#include <ampscope/formats/names.h>

#include <array>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace amp {

/// Whether the scale changes, and whether a non-finite gradient makes the optimizer skip a step.
enum class LossScaling : std::uint8_t {
    dynamic,
    constant, ///< the scale is fixed; steps with non-finite gradients are skipped (Megatron's ConstantGradScaler)
    off,      ///< the scale is 1 and nothing is checked: Megatron with BF16, or no scaler at all
};

/// The number type of the scale and of its product with a factor. The results differ only for factors that are not
/// powers of two and at the ends of FP32's range.
enum class ScaleArithmetic : std::uint8_t {
    fp64,      ///< the scale is a Python float
    fp32,      ///< the scale is an FP32 tensor; factors are rounded to FP32 first
    fp32_wide, ///< an FP32 scale times an FP64 factor in FP64, rounded to FP32 (torch's and Apex's kernels)
};

enum class BackoffRule : std::uint8_t {
    multiply, ///< scale * backoff_factor
    divide,   ///< scale / growth_factor, in frameworks with a single factor
};

/// When a clean step makes the scale grow: t is the growth tracker before that step, N the growth interval.
enum class GrowthTest : std::uint8_t {
    equal,               ///< t + 1 == N; once t >= N (after loading a state or changing N) the scale never grows again
    at_least,            ///< t + 1 >= N
    wrapping,            ///< t + 1 == N, and t becomes (t + 1) mod N
    since_overflow,      ///< (t + 1) mod N == 0, where t counts from the last overflow: growth does not reset it
    since_overflow_late, ///< t > 0 and t mod N == 0, counted in the same way: the first growth comes one step later
};

enum class HysteresisRefill : std::uint8_t {
    at_growth,       ///< refilled by growth: overflows add up however far apart they are
    each_clean_step, ///< refilled by each clean step: only consecutive overflows count
};

/// How a scaled gradient is unscaled. All rules give the same bits if the scale is a power of two in 2^-127 ... 2^127.
enum class UnscaleRule : std::uint8_t {
    reciprocal, ///< gradient * FP32(1 / scale), the quotient in FP64; infinite if the scale is 0 (where Python raises)
    divide,     ///< gradient / scale in FP32
};

/// All that distinguishes one framework's scaler from another's. The defaults are torch.amp.GradScaler's.
struct LossScalerOptions {
    LossScaling scaling = LossScaling::dynamic;
    double init_scale = 65536;
    double growth_factor = 2; ///< must exceed 1
    double backoff_factor = 0.5;
    BackoffRule backoff = BackoffRule::multiply;
    std::int64_t growth_interval = 2000;
    GrowthTest growth_test = GrowthTest::equal;
    bool guard_growth = true; ///< a growth to infinity is left out (but resets the growth tracker)
    double min_scale = 0;     ///< backoff does not go below it
    double max_scale = std::numeric_limits<double>::infinity(); ///< growth does not go above it
    bool abort_at_min_scale = false;                            ///< an overflow at min_scale ends the run
    std::int64_t hysteresis = 0; ///< number of the overflow that backs off, from 1; 0: overflows are not counted
    HysteresisRefill hysteresis_refill = HysteresisRefill::at_growth;
    bool hysteresis_stays_positive = false; ///< the stored count stops at 1 instead of falling below 0
    ScaleArithmetic arithmetic = ScaleArithmetic::fp32_wide;
    UnscaleRule unscale = UnscaleRule::reciprocal;
    /// DeepSpeed's bug, off in every row: the scale is updated before gradients are unscaled, so a step that grows the
    /// scale applies half the gradient. In the versions of 2023 to 2026 at least (its issue 2686, pull request 8588).
    bool unscale_by_updated_scale = false;
    bool fp16_gradients = true;          ///< false: unscaling FP16 gradients is an error, as in torch
    bool scaled_loss_keeps_type = false; ///< the scaled loss is rounded to the type of the loss (FSDP, fairscale)

    constexpr bool operator==(const LossScalerOptions&) const = default;
};

/// What a checkpoint of a scaler contains.
struct LossScalerState {
    double scale = 1; ///< an FP32 value unless the arithmetic is FP64; 0 or infinite where the framework allows it
    std::int64_t growth_tracker = 0;     ///< clean steps since the last overflow or, by growth test, growth
    std::int64_t hysteresis_tracker = 0; ///< the framework's count of tolerated overflows; 0 without hysteresis

    constexpr bool operator==(const LossScalerState&) const = default;
};

enum class ScalerVerdict : std::uint8_t { step, skip, abort };

struct LossScalerUpdate {
    LossScalerState state; ///< state after this step; unchanged if the verdict is abort
    ScalerVerdict verdict = ScalerVerdict::step;
    double unscale_by = 1; ///< scale by which this step's gradients are to be divided
};

/// Throws std::invalid_argument if an option is outside its range.
void check(const LossScalerOptions& options);

/// The state before the first step. Throws as check() does.
LossScalerState initial_state(const LossScalerOptions& options);

/// Makes one step from any state, under options that pass check(). Does not depend on the caller's floating-point
/// environment.
LossScalerUpdate update_scale(const LossScalerOptions& options, const LossScalerState& state, bool found_inf);

/// A gradient of the scaled loss, divided by the scale in FP32 in the way the framework does it.
float unscale(const LossScalerOptions& options, double scale, float gradient);

/// JSON {"scale", "growth_tracker", "hysteresis_tracker"}; an infinite scale is null. Values are exact in both
/// directions; from_json throws std::invalid_argument.
void to_json(nlohmann::json& json, const LossScalerState& state);
void from_json(const nlohmann::json& json, LossScalerState& state);

struct LossScalerRow {
    std::string_view name;
    LossScalerOptions options;
    std::string_view source; ///< the framework and version that the row reproduces
};

inline constexpr std::array loss_scalers = {
    LossScalerRow{
        "torch", {.fp16_gradients = false}, "torch.amp.GradScaler: _amp_update_scale_ on CUDA and CPU, which agree"},
    LossScalerRow{"torch-sharded",
                  {.scaled_loss_keeps_type = true},
                  "FSDP's and fairscale's ShardedGradScaler with the scale on a GPU: GradScaler's machine"},
    LossScalerRow{
        "torch-sharded-cpu",
        {.guard_growth = false, .arithmetic = ScaleArithmetic::fp32, .scaled_loss_keeps_type = true},
        "ShardedGradScaler._amp_update_scale_cpu_, the scale on the CPU: tensor arithmetic, growth may reach inf"},
    LossScalerRow{
        "apex",
        {.guard_growth = false, .max_scale = 0x1p24, .arithmetic = ScaleArithmetic::fp64},
        "apex.amp LossScaler.update_scale, a Python float; min_loss_scale None; its static scale never skips"},
    LossScalerRow{"apex-hysteresis",
                  {.hysteresis = 2, .hysteresis_refill = HysteresisRefill::each_clean_step},
                  "apex update_scale_hysteresis_cuda; it takes all as arguments: here torch's, and hysteresis 2"},
    LossScalerRow{"deepspeed",
                  {.backoff = BackoffRule::divide,
                   .growth_interval = 1000,
                   .growth_test = GrowthTest::since_overflow,
                   .guard_growth = false,
                   .min_scale = 1,
                   .abort_at_min_scale = true,
                   .hysteresis = 2,
                   .hysteresis_stays_positive = true,
                   .arithmetic = ScaleArithmetic::fp64},
                  "DeepSpeed DynamicLossScaler (ZeRO), defaults of the configuration if it holds any of its keys; "
                  "consecutive_hysteresis refills at each clean step; in 2026 its growth test became the late one"},
    LossScalerRow{"deepspeed-bare",
                  {.init_scale = 0x1p32,
                   .backoff = BackoffRule::divide,
                   .growth_interval = 1000,
                   .growth_test = GrowthTest::since_overflow,
                   .guard_growth = false,
                   .min_scale = 1,
                   .abort_at_min_scale = true,
                   .hysteresis = 1,
                   .hysteresis_stays_positive = true,
                   .arithmetic = ScaleArithmetic::fp64},
                  "DeepSpeed DynamicLossScaler, the class's own defaults: what fp16: {enabled: true} alone gives"},
    LossScalerRow{"deepspeed-fused",
                  {.init_scale = 0x1p32,
                   .backoff = BackoffRule::divide,
                   .growth_interval = 1000,
                   .growth_test = GrowthTest::since_overflow_late,
                   .guard_growth = false,
                   .min_scale = 1,
                   .arithmetic = ScaleArithmetic::fp64},
                  "DeepSpeed FP16_Optimizer._update_scale (stage 0); FP16_UnfusedOptimizer likewise from 2^16"},
    LossScalerRow{"megatron",
                  {.init_scale = 0x1p32,
                   .growth_interval = 1000,
                   .guard_growth = false,
                   .min_scale = 1,
                   .hysteresis = 2,
                   .arithmetic = ScaleArithmetic::fp32},
                  "Megatron-LM DynamicGradScaler (--fp16); factors and minimum are FP32 tensors"},
    LossScalerRow{"keras3",
                  {.init_scale = 0x1p15,
                   .guard_growth = false,
                   .arithmetic = ScaleArithmetic::fp32,
                   .unscale = UnscaleRule::divide},
                  "keras.optimizers.LossScaleOptimizer, Keras 3"},
    LossScalerRow{"keras2",
                  {.init_scale = 0x1p15,
                   .backoff = BackoffRule::divide,
                   .growth_test = GrowthTest::at_least,
                   .min_scale = 1,
                   .arithmetic = ScaleArithmetic::fp32,
                   .unscale = UnscaleRule::divide},
                  "tf.keras.mixed_precision.LossScaleOptimizer, 2.15"},
    LossScalerRow{"jmp",
                  {.init_scale = 0x1p15,
                   .backoff = BackoffRule::divide,
                   .growth_test = GrowthTest::wrapping,
                   .min_scale = 1,
                   .arithmetic = ScaleArithmetic::fp32},
                  "jmp.DynamicLossScale.adjust, FP32; the initial scale is its documentation's, it has no default"},
    LossScalerRow{"constant",
                  {.scaling = LossScaling::constant, .arithmetic = ScaleArithmetic::fp32},
                  "Megatron-LM ConstantGradScaler (--loss-scale); give the scale"},
    LossScalerRow{"none", {.scaling = LossScaling::off, .init_scale = 1}, "no scaling and no check"},
};

/// The row of that name; throws std::invalid_argument, listing the names, for any other.
constexpr const LossScalerRow& loss_scaler(std::string_view name) {
    return find_row("loss scaler", loss_scalers, name);
}

} // namespace amp

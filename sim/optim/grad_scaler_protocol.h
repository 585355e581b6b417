// How torch.amp.GradScaler may be used: the errors that it raises for calls in the wrong order, without tensors.
//
//     GradScalerProtocol protocol;
//     protocol.scale();
//     protocol.unscale(0, {.found_inf = false});
//     if (protocol.step(0)) ... the optimizer steps ...
//     state = update_scale(options, state, protocol.update()).state;
//
// After torch/amp/grad_scaler.py (2026) and torch/distributed/fsdp/sharded_grad_scaler.py. A call that raises leaves
// behind what it leaves behind there.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <stdexcept>
#include <string_view>

namespace amp {

/// Each names the rule that was broken; the text in quotation marks is what torch prints, to be found by.
enum class GradScalerFault : std::uint8_t {
    scale_not_called,
    unscaled_twice,
    unscaled_after_step,
    stepped_twice,
    closure,
    fp16_gradients,
    nothing_checked_for_optimizer,
    nothing_checked_before_update,
};

inline constexpr std::array<std::string_view, 8> grad_scaler_faults = {
    "unscale_, step and update need a scale, which the first scale(loss) makes (\"_scale is None\")",
    "the gradients of this optimizer are unscaled already and would be divided twice; with accumulation, unscale_ once "
    "per update (\"unscale_() has already been called\")",
    "the optimizer has stepped; unscale_ belongs between backward and step (\"unscale_() is being called after "
    "step()\")",
    "the optimizer has stepped; update comes before its next step (\"step() has already been called\")",
    "a closure would run the model again with gradients scaled (\"Closure use is not currently supported\")",
    "FP16 gradients cannot be unscaled: they would underflow again. Keep FP32 parameters and let autocast choose FP16 "
    "(\"Attempting to unscale FP16 gradients\")",
    "no parameter of this optimizer has a gradient (\"No inf checks were recorded for this optimizer\")",
    "no optimizer was unscaled or stepped since the last update (\"No inf checks were recorded prior to update\")",
};

class GradScalerError : public std::logic_error {
  public:
    explicit GradScalerError(GradScalerFault broken);
    GradScalerFault fault;
};

enum class GradScalerKind : std::uint8_t {
    torch,
    sharded, ///< FSDP: FP16 gradients are unscaled, and a rank without gradients counts as checked
};

/// What unscale_ or step finds when it looks at an optimizer's gradients.
struct GradientFacts {
    bool any = true; ///< some parameter has a gradient
    bool fp16 = false;
    bool found_inf = false;
};

struct StepCall {
    bool fused = false; ///< the optimizer takes scaled gradients (_step_supports_amp_scaling: fused=True)
    bool closure = false;
};

/// Stages of each optimizer between two updates. Optimizers are told apart by a number of the caller's.
class GradScalerProtocol {
  public:
    explicit GradScalerProtocol(GradScalerKind kind = GradScalerKind::torch) : kind_(kind) {}

    // Each throws GradScalerError.
    void scale() { has_scale_ = true; }
    void unscale(int optimizer, const GradientFacts& gradients = {});
    /// Whether the parameters of this optimizer change: its own gradients decide, not those of others. `gradients` are
    /// looked at only if unscale() has not been called. A fused optimizer that has no gradients "steps".
    bool step(int optimizer, const GradientFacts& gradients = {}, const StepCall& call = {});
    /// found_inf of the state machine: whether any optimizer found one.
    bool update();
    /// update(new_scale), which needs no checks.
    void set_scale();

  private:
    enum class Stage : std::uint8_t { ready, unscaled, stepped };
    struct PerOptimizer {
        Stage stage = Stage::ready;
        std::optional<bool> found_inf{}; ///< none: no check recorded
    };

    [[nodiscard]] std::optional<bool> check(const GradientFacts& gradients, bool allow_fp16) const;
    void need_scale() const;

    GradScalerKind kind_;
    bool has_scale_ = false;
    std::map<int, PerOptimizer> optimizers_;
};

} // namespace amp

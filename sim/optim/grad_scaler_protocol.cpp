#include <ampscope/sim/optim/grad_scaler_protocol.h>

#include <string>

namespace amp {

GradScalerError::GradScalerError(GradScalerFault broken)
    : std::logic_error("[grad_scaler] " + std::string(grad_scaler_faults[static_cast<std::size_t>(broken)])),
      fault(broken) {}

void GradScalerProtocol::need_scale() const {
    if (!has_scale_) throw GradScalerError(GradScalerFault::scale_not_called);
}

std::optional<bool> GradScalerProtocol::check(const GradientFacts& gradients, bool allow_fp16) const {
    if (!gradients.any) return kind_ == GradScalerKind::sharded ? std::optional(false) : std::nullopt;
    if (gradients.fp16 && !allow_fp16) throw GradScalerError(GradScalerFault::fp16_gradients);
    return gradients.found_inf;
}

void GradScalerProtocol::unscale(int optimizer, const GradientFacts& gradients) {
    need_scale();
    PerOptimizer& state = optimizers_[optimizer];
    if (state.stage == Stage::unscaled) throw GradScalerError(GradScalerFault::unscaled_twice);
    if (state.stage == Stage::stepped) throw GradScalerError(GradScalerFault::unscaled_after_step);
    state.found_inf = check(gradients, kind_ == GradScalerKind::sharded);
    state.stage = Stage::unscaled;
}

bool GradScalerProtocol::step(int optimizer, const GradientFacts& gradients, const StepCall& call) {
    if (call.closure) throw GradScalerError(GradScalerFault::closure);
    need_scale();
    PerOptimizer& state = optimizers_[optimizer];
    if (state.stage == Stage::stepped) throw GradScalerError(GradScalerFault::stepped_twice);
    if (state.stage == Stage::ready) {
        if (call.fused) state.found_inf = check(gradients, true); // with an inverse scale of 1; the kernel unscales
        else unscale(optimizer, gradients);
    }
    if (!call.fused && !state.found_inf) throw GradScalerError(GradScalerFault::nothing_checked_for_optimizer);
    state.stage = Stage::stepped;
    return !state.found_inf.value_or(false);
}

bool GradScalerProtocol::update() {
    need_scale();
    bool checked = false, found = false;
    for (const auto& [id, state] : optimizers_) {
        checked = checked || state.found_inf.has_value();
        found = found || state.found_inf.value_or(false);
    }
    if (!checked) throw GradScalerError(GradScalerFault::nothing_checked_before_update);
    optimizers_.clear();
    return found;
}

void GradScalerProtocol::set_scale() {
    need_scale();
    optimizers_.clear();
}

} // namespace amp

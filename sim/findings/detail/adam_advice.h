// Draws conclusions from the counts of Adam's effects, in the same words for amp-adam and for the page of a comparison.
#pragma once

#include <ampscope/sim/findings/adam.h>

namespace amp::detail {

/// The share of the steps that the e-th eps decides, with m and v in FP32.
double decided_share(const AdamEffects& effects, std::size_t e);

/// The index of the largest eps of the sweep that decides few steps, less than 1 %; none: all of them decide more.
std::optional<std::size_t> quiet_eps(const AdamEffects& effects, const AdamQuestion& question);

/// The index of the eps in use if it decides few steps, else of the largest smaller one that does.
std::optional<std::size_t> eps_that_will_do(const AdamEffects& effects, const AdamQuestion& question);

/// Whether no weight has a gradient that tells anything.
bool tells_nothing(const AdamEffects& effects, const AdamQuestion& question);

/// Why they tell nothing: "no gradient of step 90 is finite and not zero", or that m and v keep the NaN of another
/// step. `step`: the examined one, if files name it.
std::string nothing_text(const AdamEffects& effects, const std::optional<std::int64_t>& step);

/// Whether what was recorded as zero, or as a sum of terms that may have been, could make the eps that will do one that
/// decides more than few steps.
bool is_open(const AdamEffects& effects, const AdamQuestion& question, const Censoring& censoring);

/// "33.3 % of the steps are NaN or infinite in every format, as the gradients themselves are from step 2 on, first in
/// h.0.weight.grad"; empty if all steps are finite with m and v in FP32. `findings`: those that name the gradient.
std::string broken_text(const AdamEffects& effects, const AdamFindings& findings);

/// What formats of m and v do to more than a few elements that FP32 does not: "v in bf16 cannot decay in 92.4 % of the
/// elements".
std::vector<std::string> state_faults(const AdamEffects& effects, const AdamQuestion& question);

/// Sets muted_from, of every tensor and of the total, and the advice.
void advise(AdamFindings& findings);

} // namespace amp::detail

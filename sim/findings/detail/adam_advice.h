// Draws conclusions from the counts of Adam's effects, in sentences.
#pragma once

#include <ampscope/sim/findings/adam.h>

namespace amp::detail {

/// Sets muted_from, of every tensor and of the total, and the advice.
void advise(AdamFindings& findings);

} // namespace amp::detail

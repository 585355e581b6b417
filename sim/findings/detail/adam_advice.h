// What follows from the counts of Adam's effects, in sentences.
#pragma once

#include <ampscope/sim/findings/adam.h>

namespace amp::detail {

/// Fills in muted_from, of every tensor and of all, and the advice.
void advise(AdamFindings& findings);

} // namespace amp::detail

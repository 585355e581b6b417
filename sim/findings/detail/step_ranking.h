// The judgement of a step in several precisions, once its numbers are there.
#pragma once

#include <ampscope/sim/findings/step_comparison.h>

namespace amp::detail {

/// Fills each precision's ranking, median and verdict.
void judge(StepComparison& comparison);

} // namespace amp::detail

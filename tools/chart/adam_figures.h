// Pictures of what eps and the formats of its state do to Adam.
#pragma once

#include <ampscope/sim/findings/adam.h>
#include <ampscope/tools/chart/chart.h>

namespace amp {

/// sqrt(v_hat) / eps, a panel for each state format.
BarFigure ratio_figure(const AdamFindings& findings);

/// What each eps of the sweep does, a panel for each state format.
LineFigure sweep_figure(const AdamFindings& findings);

} // namespace amp

// The picture of what loss scales do to gradients.
#pragma once

#include <ampscope/sim/analysis/scale_curves.h>
#include <ampscope/tools/chart/chart.h>

namespace amp {

/// A panel for each format, with its window and the recommended scale; `limit` is that of the underflow rate.
RateFigure loss_scale_figure(const ScaleCurves& scales, double limit);

} // namespace amp

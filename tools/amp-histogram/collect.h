// From paths to findings: reading, counting, merging, judging.
#pragma once

#include <ampscope/tools/amp-histogram/document.h>

namespace amp::histogram_tool {

/// Reads and counts whatever the options select. Files that cannot be read become errors; nothing of them is counted.
Findings collect(const HistogramOptions& options);

} // namespace amp::histogram_tool

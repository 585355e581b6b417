// amp-loss-scale's inputs, asked one after another.
#pragma once

#include <ampscope/tools/amp-loss-scale/options.h>
#include <ampscope/tools/output.h>

namespace amp::loss_scale_tool {

struct LossScaleAnswer {
    std::vector<LossScaleFindings> logs; ///< those of which something can be said
    std::vector<std::string> errors;     ///< a line for each file and folder that cannot be read
};

/// A folder of run folders stands for them. Warnings and errors are told as they come.
LossScaleAnswer ask(const LossScaleToolOptions& options, const Tell& tell, const Watch& watch);

} // namespace amp::loss_scale_tool

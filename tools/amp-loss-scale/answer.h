// Asks amp-loss-scale's questions about one input after another.
#pragma once

#include <ampscope/tools/amp-loss-scale/options.h>
#include <ampscope/tools/output.h>

namespace amp::loss_scale_tool {

struct LossScaleAnswer {
    std::vector<LossScaleFindings> runs; ///< the inputs with an answer
    std::vector<std::string> errors;     ///< one line for each file and folder that cannot be read
};

/// A folder of run folders stands for those. Reports warnings and errors as they come.
LossScaleAnswer ask(const LossScaleToolOptions& options, const Tell& tell, const Watch& watch);

} // namespace amp::loss_scale_tool

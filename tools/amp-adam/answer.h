// Asks amp-adam's questions about one input after another.
#pragma once

#include <ampscope/tools/amp-adam/options.h>
#include <ampscope/tools/output.h>

namespace amp::adam_tool {

struct AdamAnswer {
    std::vector<AdamFindings> inputs; ///< the inputs with an answer
    std::vector<std::string> errors;  ///< one line for each file that cannot be read
};

/// Reports warnings and errors as they come.
AdamAnswer ask(const AdamToolOptions& options, const Tell& tell, const Watch& watch);

} // namespace amp::adam_tool

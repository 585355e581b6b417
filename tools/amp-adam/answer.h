// amp-adam's inputs, asked one after another.
#pragma once

#include <ampscope/tools/amp-adam/options.h>
#include <ampscope/tools/output.h>

namespace amp::adam_tool {

struct AdamAnswer {
    std::vector<AdamFindings> inputs; ///< those of which something can be said
    std::vector<std::string> errors;  ///< a line for each file that cannot be read
};

/// Warnings and errors are told as they come.
AdamAnswer ask(const AdamToolOptions& options, const Tell& tell, const Watch& watch);

} // namespace amp::adam_tool

// What amp-train and amp-report say of training against serving.
#pragma once

#include <ampscope/sim/findings/mismatch.h>
#include <ampscope/tools/document/document.h>

namespace amp {

/// Of one serving at least. `worst`: rows of a table of ops; 0: all.
Document document_of(const MismatchReport& report, std::size_t worst);

} // namespace amp

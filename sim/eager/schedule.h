// In which order the ops of one call run, so that little memory is in use at once: the patches of a convolution take
// nine times what its image takes.
#pragma once

#include <ampscope/sim/program/ops.h>

namespace amp {

/// Backward as a tape of its own: each op as early as what it reads allows, and each op of forward whose result is
/// read, which is computed again, just before the first that reads it. Every op reads what it reads in the program.
Tape backward_by_itself(const Program& program);

} // namespace amp

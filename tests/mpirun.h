// Starts programs as several ranks, for tests that need MPI.
#pragma once

#include "tool.h"

namespace amp::test {

inline constexpr const char* mpirun =
    "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout 100 mpirun --oversubscribe";

/// Whether there is an mpirun, and this tool was built with MPI.
inline bool has_mpi(const char* tool) {
    return run_command("command -v mpirun").code == 0 && fs::exists(fs::path(tool).parent_path() / "ampscope_mpi.so");
}

} // namespace amp::test

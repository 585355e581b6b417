#include <ampscope/sim/base/ranks.h>

#include <ampscope/sim/base/number.h>

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string_view>

#include <dlfcn.h>

namespace amp {

namespace {

/// Where the module lies, seen from this executable: beside it where it was built, in lib/ampscope where installed.
std::filesystem::path find_module() {
    std::error_code none;
    const std::filesystem::path here = std::filesystem::read_symlink("/proc/self/exe", none).parent_path();
    for (const std::filesystem::path& place : {here, here.parent_path() / "lib" / "ampscope"})
        if (std::filesystem::exists(place / "ampscope_mpi.so", none)) return place / "ampscope_mpi.so";
    return {};
}

/// The whole number that a variable of the environment holds; 0 if it holds none.
int number_in(const char* variable) {
    const char* const text = std::getenv(variable);
    return number_of<int>(text == nullptr ? "" : text).value_or(0);
}

} // namespace

int launched_ranks() {
    if (const int size = number_in("OMPI_COMM_WORLD_SIZE"); size > 1) return size; // Open MPI's mpirun
    if (const int size = number_in("PMI_SIZE"); size > 1) return size;             // MPICH's, and srun --mpi=pmi2
    // Any step of Slurm has a size; only srun --mpi=pmix has this, too.
    return std::getenv("PMIX_RANK") == nullptr ? 1 : std::max(1, number_in("SLURM_STEP_NUM_TASKS"));
}

int launched_rank() {
    if (launched_ranks() == 1) return 0;
    for (const char* variable : {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"})
        if (const int rank = number_in(variable); rank > 0) return rank;
    return 0;
}

std::unique_ptr<Ranks> join_ranks() {
    const int launched = launched_ranks();
    const std::filesystem::path module = find_module();
    if (module.empty())
        throw std::runtime_error(
            fmt::format("started as one of {} ranks, but built without MPI: install libopenmpi-dev and build again, or "
                        "start with --alone",
                        launched));
    // MPI's own plug-ins need its symbols.
    void* const library = ::dlopen(module.c_str(), RTLD_NOW | RTLD_GLOBAL);
    void* const entry = library == nullptr ? nullptr : ::dlsym(library, ranks_entry);
    if (entry == nullptr) throw std::runtime_error(fmt::format("{}: {}", module.string(), ::dlerror()));
    std::unique_ptr<Ranks> ranks(reinterpret_cast<Ranks* (*)()>(entry)());
    if (ranks->size() != launched)
        throw std::runtime_error(fmt::format("started as one of {} ranks, of which MPI sees {}; with Slurm: srun "
                                             "--mpi=pmix",
                                             launched, ranks->size()));
    return ranks;
}

} // namespace amp

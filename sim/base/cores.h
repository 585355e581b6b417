// How many cores this process may use, which may be fewer than the machine has.
#pragma once

#include <filesystem>
#include <optional>

namespace amp {

/// The processor time that the control groups of this process allow, in whole cores: the smallest quota of its own
/// group and those above it, in version 1 (cpu.cfs_quota_us) and 2 (cpu.max), rounded up. std::nullopt without a quota,
/// or where the files of proc(5) and cgroups(7) cannot be read. `root` is used in place of "/".
std::optional<int> quota_cores(const std::filesystem::path& root = "/");

/// The number of cores in the process's affinity mask, but no more than its quota; at least 1.
int available_cores();

} // namespace amp

// How many cores this process may use, as it sees them rather than as the machine has them.
#pragma once

#include <filesystem>
#include <optional>

namespace amp {

/// The processor time that the control groups of this process leave it, in whole cores: the smallest quota of its own
/// group and those above, in version 1 (cpu.cfs_quota_us) and 2 (cpu.max), rounded up. Nothing without a quota, or
/// where the files of proc(5) and cgroups(7) cannot be read. `root` stands for "/".
std::optional<int> quota_cores(const std::filesystem::path& root = "/");

/// The cores of the process's affinity mask, but no more than its quota; at least 1.
int available_cores();

} // namespace amp

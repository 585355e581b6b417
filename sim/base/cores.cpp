#include <ampscope/sim/base/cores.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#if defined(__linux__)
#include <sched.h>
#endif

namespace amp {

namespace {

namespace fs = std::filesystem;

/// Whether a comma-separated list has the word.
bool has_word(std::string_view list, std::string_view word) {
    while (!list.empty()) {
        const std::string_view first = list.substr(0, list.find(','));
        if (first == word) return true;
        list.remove_prefix(std::min(first.size() + 1, list.size()));
    }
    return false;
}

/// Where control groups are mounted and which part of their tree it is: fields 4 and 5 of a line of mountinfo.
struct Mount {
    bool unified; ///< version 2
    fs::path group, folder;
};

/// The mounts of control groups that limit processor time.
std::vector<Mount> cpu_mounts(const fs::path& root) {
    std::vector<Mount> mounts;
    std::ifstream in(root / "proc/self/mountinfo");
    for (std::string line; std::getline(in, line);) {
        const std::size_t dash = line.find(" - ");
        if (dash == std::string::npos) continue;
        std::string skipped, group, folder, type, source, options;
        std::istringstream(line) >> skipped >> skipped >> skipped >> group >> folder;
        std::istringstream(line.substr(dash + 3)) >> type >> source >> options;
        if (type == "cgroup2" || (type == "cgroup" && has_word(options, "cpu")))
            mounts.push_back({type == "cgroup2", group, folder});
    }
    return mounts;
}

/// The path of the process's own control group.
std::optional<fs::path> own_group(const fs::path& root, bool unified) {
    std::ifstream in(root / "proc/self/cgroup");
    for (std::string line; std::getline(in, line);) { // hierarchy:controllers:path
        const std::size_t first = line.find(':'), second = line.find(':', first + 1);
        if (second == std::string::npos) continue;
        const std::string_view controllers = std::string_view(line).substr(first + 1, second - first - 1);
        if (unified ? line.starts_with("0::") : has_word(controllers, "cpu")) return line.substr(second + 1);
    }
    return std::nullopt;
}

/// The quota of one control group, in cores.
std::optional<int> quota_of(const fs::path& group, bool unified) {
    std::int64_t quota = 0, period = 0; // "max" (no quota) is not a number, and -1 (no quota) is below 1
    if (unified) {
        std::ifstream(group / "cpu.max") >> quota >> period;
    } else {
        std::ifstream(group / "cpu.cfs_quota_us") >> quota;
        std::ifstream(group / "cpu.cfs_period_us") >> period;
    }
    if (quota < 1 || period < 1) return std::nullopt;
    return static_cast<int>(std::min<std::int64_t>((quota - 1) / period + 1, std::numeric_limits<int>::max()));
}

int affinity_cores() {
#if defined(__linux__)
    for (std::size_t cpus = CPU_SETSIZE; cpus <= std::size_t{1} << 20; cpus *= 2) { // until the kernel's mask has room
        std::vector<cpu_set_t> set(cpus / CPU_SETSIZE);
        const std::size_t bytes = set.size() * sizeof(cpu_set_t);
        if (::sched_getaffinity(0, bytes, set.data()) == 0) return CPU_COUNT_S(bytes, set.data());
    }
#endif
    return static_cast<int>(std::thread::hardware_concurrency());
}

} // namespace

std::optional<int> quota_cores(const fs::path& root) {
    std::optional<int> least;
    for (const Mount& mount : cpu_mounts(root)) {
        const std::optional<fs::path> own = own_group(root, mount.unified);
        if (!own) continue;
        // A container may see only a part of the tree, or its own group as the tree's root.
        fs::path below = own->lexically_relative(mount.group);
        if (below.empty() || *below.begin() == "..") below = ".";
        const fs::path top = root / mount.folder.relative_path();
        for (;; below = below.parent_path()) {
            if (const auto quota = quota_of(top / below, mount.unified))
                least = std::min(least.value_or(*quota), *quota);
            if (below.empty() || below == ".") break;
        }
    }
    return least;
}

int available_cores() {
    return std::max(1, std::min(affinity_cores(), quota_cores().value_or(std::numeric_limits<int>::max())));
}

} // namespace amp

// Reports of progress: for a progress bar, or a program that may want to end the work.
#pragma once

#include <cstdint>
#include <functional>

namespace amp {

/// Called with the amount of work done since the last call, mostly in bytes. Calls come from any thread, but one at a
/// time; an exception that it throws ends the work.
using Progress = std::function<void(std::uint64_t done)>;

/// Called once, when the total amount of work is known. It may be empty, and so may the Progress that it returns, which
/// is kept until the work has ended.
using Watch = std::function<Progress(std::uint64_t total)>;

/// Calls `watch` with the total; an empty Progress if nobody watches.
inline Progress begin(const Watch& watch, std::uint64_t total) { return watch ? watch(total) : Progress(); }

} // namespace amp

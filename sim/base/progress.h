// Who watches long work: a progress bar, or a program that may want to end it.
#pragma once

#include <cstdint>
#include <functional>

namespace amp {

/// Told of what was done since the last call, mostly in bytes. It may be called from any thread, by one at a time; what
/// it throws ends the work.
using Progress = std::function<void(std::uint64_t done)>;

/// Asked once all that is to be done is known; may be empty, and so may be what it returns, which lives until the work
/// has ended.
using Watch = std::function<Progress(std::uint64_t total)>;

/// What `watch` makes of work of this size: empty where nobody watches.
inline Progress begin(const Watch& watch, std::uint64_t total) { return watch ? watch(total) : Progress(); }

} // namespace amp

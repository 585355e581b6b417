// Where a run folder stores the state before a step.
#pragma once

#include <cstdint>
#include <filesystem>

namespace amp::detail {

/// The path state/step_000100.safetensors; the file exists only if the state was recorded.
std::filesystem::path recorded_state(const std::filesystem::path& run, std::int64_t step);

} // namespace amp::detail

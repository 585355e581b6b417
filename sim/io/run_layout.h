// Names of the files and folders in the folder of a run; train/run_folder.h says what they contain. All code that
// writes or reads such folders, the Python package included, takes the names from here.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

namespace amp::run_layout {

inline constexpr std::int64_t schema_version = 1; ///< version of the layout of run.json and metrics.jsonl

inline constexpr const char *configuration = "run.json", *result = "result.json";
inline constexpr const char *metrics = "metrics.jsonl", *histograms = "histograms.jsonl";
inline constexpr std::array files = {configuration, result, metrics, histograms};

inline constexpr const char *gradients = "gradients", *state = "state", *checkpoints = "checkpoints";
inline constexpr std::array folders = {gradients, state, checkpoints};

/// The name of a step's file in one of the folders: "step_000100.safetensors".
std::string step_file(std::int64_t step);

/// The step in a name that step_file() makes; std::nullopt for any other name.
std::optional<std::int64_t> step_of(const std::string& name);

} // namespace amp::run_layout

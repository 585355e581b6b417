// Names of the files and folders in the folder of a run; train/run_folder.h says what they contain. All code that
// writes or reads such folders, the Python package included, takes the names from here.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

namespace amp::run_layout {

/// Version of what these files hold. In version 1 the kinds "weight" and "activation" meant gradients; version 2 names
/// all kinds of io/recording.h. It is the first key of run.json, stands in every line of histograms.jsonl and in the
/// metadata of files of tensors, so that each of them can be read on its own; where it is missing, it is 1. In
/// metrics.jsonl the keys of "amax" tell the versions apart.
inline constexpr std::int64_t schema_version = 2;

inline constexpr const char *configuration = "run.json", *result = "result.json";
inline constexpr const char *metrics = "metrics.jsonl", *histograms = "histograms.jsonl";
inline constexpr std::array files = {configuration, result, metrics, histograms};

/// What amp-train --against measured of the run's last checkpoint, if a user put it there; amp-report reads it.
inline constexpr const char* against = "against.json";

inline constexpr const char *gradients = "gradients", *replicas = "replicas", *state = "state",
                            *checkpoints = "checkpoints";
inline constexpr std::array folders = {gradients, replicas, state, checkpoints};

/// The name of a step's file in one of the folders: "step_000100.safetensors".
std::string step_file(std::int64_t step);

/// The step in a name that step_file() makes; std::nullopt for any other name.
std::optional<std::int64_t> step_of(const std::string& name);

} // namespace amp::run_layout

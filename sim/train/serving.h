// A trained network as a server would run it: weights, activations and the cache of keys and values in narrow formats,
// and what that does to its loss and saves in bytes.
#pragma once

#include <ampscope/sim/train/trainer.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace amp {

/// What is served narrow, and its text: "e4m3", or "e4m3:token" with what shares a scale: tensor (of all); channel (an
/// output of a weight); token (a row of activations, or of a head's keys or values); or one, no scale at all. Scales
/// are the tensor's own: s = max / amax. Throws std::invalid_argument.
enum class Served : std::uint8_t { weights, activations, kv_cache };
OperandScaling served_scaling(Served what, std::string_view text);

struct ServedResult {
    std::string name; ///< "as trained", "weights" ...
    Evaluation validation{};
    double weight_bytes = 0;       ///< of all parameters, scales included
    double kv_bytes_per_token = 0; ///< of all layers; 0 for networks without attention
};

/// What a run was, from its run.json. Throws FileError.
TrainOptions trained_options(const std::filesystem::path& run);

/// The network of a run's last checkpoint on its validation data: as trained but for scaled layers, then with each of
/// `serving` on its own, then with all. Throws FileError if there is no checkpoint, or if the data are not the run's.
std::vector<ServedResult> evaluate_served(const std::filesystem::path& run, const TrainOptions& options,
                                          const Dataset& data, const Serving& serving, int threads);

} // namespace amp

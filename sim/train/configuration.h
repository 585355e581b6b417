// The configuration of a run as JSON: everything that decides its bits.
#pragma once

#include <ampscope/sim/train/trainer.h>

#include <nlohmann/json_fwd.hpp>

#include <functional>
#include <string>

namespace amp {

/// Model, precision, optimizer, loss scaler, batches, replicas, seed and data. Two runs with equal configurations give
/// the same bits.
nlohmann::ordered_json configuration_of(const TrainOptions& options, const Dataset& data);
/// The entry "precision" of a configuration.
nlohmann::ordered_json precision_json(const Precision& precision);
/// The same for a run folder of an earlier version, as it would be written now: they had no table of layers, but lists
/// of the modules outside autocast and of those that recipes leave as they are.
nlohmann::ordered_json as_written_now(nlohmann::ordered_json configuration);
/// The options of amp-train, other than precision, seed and steps, with which a run was made and that are not the
/// defaults of its network, as far as its configuration tells: " --model gpt --width 16 --lr 0.01"; empty for an
/// unknown network.
std::string command_options(const nlohmann::ordered_json& configuration);

/// The entry "data" of a configuration.
nlohmann::ordered_json data_of(const Dataset& data);
/// Reads from a configuration what the network computes: model, precision, batch and seed. Throws what reading JSON
/// throws, and std::invalid_argument.
TrainOptions options_of(const nlohmann::ordered_json& configuration);

/// The path of the first entry in which the two differ, such as "/optimizer/lr"; empty if they are equal.
std::string difference(const nlohmann::ordered_json& a, const nlohmann::ordered_json& b);

/// Called with such a path and the two values there; null where a document has none.
using DifferenceSink =
    std::function<void(const std::string& at, const nlohmann::ordered_json* a, const nlohmann::ordered_json* b)>;

/// Reports every place where two documents differ, in the order of `a`; what only `b` has comes last in its object or
/// array.
void for_each_difference(const nlohmann::ordered_json& a, const nlohmann::ordered_json& b, const DifferenceSink& sink);

/// Fingerprint of all that a run continues from: every bit of weights, optimizer state and loss scaler.
std::string fingerprint_of(const Trainer& trainer);

} // namespace amp

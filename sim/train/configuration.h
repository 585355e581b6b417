// What decides the bits of a run, in words.
#pragma once

#include <ampscope/sim/train/trainer.h>

#include <nlohmann/json_fwd.hpp>

#include <functional>
#include <string>

namespace amp {

/// Two runs give the same bits if these are equal: model, precision, optimizer, loss scaler, batches, replicas, seed
/// and data.
nlohmann::ordered_json configuration_of(const TrainOptions& options, const Dataset& data);
/// Its "data".
nlohmann::ordered_json data_of(const Dataset& data);
/// Of that, what the network computes: model, precision, batch and seed. Throws what reading JSON does, and
/// std::invalid_argument.
TrainOptions options_of(const nlohmann::ordered_json& configuration);

/// The first entry in which two of them differ, as a path such as "/optimizer/lr"; empty if they agree.
std::string difference(const nlohmann::ordered_json& a, const nlohmann::ordered_json& b);

/// Told of a place, as such a path, and of what the two have there; null where one has nothing.
using DifferenceSink =
    std::function<void(const std::string& at, const nlohmann::ordered_json* a, const nlohmann::ordered_json* b)>;

/// Every place where two documents differ, in the order of `a`; what only `b` has comes last in its object or array.
void for_each_difference(const nlohmann::ordered_json& a, const nlohmann::ordered_json& b, const DifferenceSink& sink);

/// Of all that a run goes on from: every bit of weights, optimizer and loss scaler.
std::string fingerprint_of(const Trainer& trainer);

} // namespace amp

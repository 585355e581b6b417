// What decides the bits of a run, in words.
#pragma once

#include <ampscope/sim/trainer.h>

#include <nlohmann/json_fwd.hpp>

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

/// Of all that a run goes on from: every bit of weights, optimizer and loss scaler.
std::string fingerprint_of(const Trainer& trainer);

} // namespace amp

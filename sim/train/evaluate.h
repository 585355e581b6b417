// A network on its validation data.
#pragma once

#include <ampscope/sim/backend/backend.h>
#include <ampscope/sim/program/model.h>
#include <ampscope/sim/train/data/dataset.h>

#include <optional>

namespace amp {

struct Evaluation {
    double loss = 0;
    std::optional<double> accuracy{}; ///< share of targets that count whose class has the largest output
};

/// Copies a batch to the network: training examples in the order of the shuffle, or validation examples one by one.
void load_batch(Backend& backend, const Network& network, const Dataset& data, std::int64_t first, std::int64_t batch,
                Shuffle* shuffle);

/// The forward tape on all validation data (of measurements, on whole batches of it). context.training is the caller's.
Evaluation evaluate_network(Backend& backend, const Network& network, const Dataset& data, std::int64_t batch);

} // namespace amp

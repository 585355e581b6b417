// Evaluates a network on its validation data.
#pragma once

#include <ampscope/sim/backend/backend.h>
#include <ampscope/sim/program/model.h>
#include <ampscope/sim/train/data/dataset.h>

#include <optional>

namespace amp {

struct Evaluation {
    double loss = 0;
    std::optional<double> accuracy{}; ///< share of targets (without ignored ones) whose class has the largest output
};

/// Copies a batch to the network, as read_batch().
void load_batch(Backend& backend, const Network& network, const Dataset& data, std::int64_t first, std::int64_t batch,
                Shuffle* shuffle);

/// Copies batch `b` of the validation data to the network. If targets are classes, those of examples beyond the last
/// are negative, which is ignored. Returns the number of examples that count.
std::int64_t load_validation_batch(Backend& backend, const Network& network, const Dataset& data, std::int64_t b,
                                   std::int64_t batch);
/// The number of such batches: whole ones only if targets are real numbers.
std::int64_t validation_batches(const Dataset& data, std::int64_t batch);

/// Runs the forward tape on all validation data (in whole batches if targets are real numbers). The caller sets
/// context.training.
Evaluation evaluate_network(Backend& backend, const Network& network, const Dataset& data, std::int64_t batch);

} // namespace amp

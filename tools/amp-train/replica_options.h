// The replicas that a command line of amp-train describes: how they add gradients, and what each keeps.
#pragma once

#include <ampscope/sim/train/trainer.h>

#include <CLI/CLI.hpp>

#include <string>

namespace amp::train_tool {

/// The options about replicas, before they mean anything.
struct ReplicaWords {
    std::string all_reduce = "ring", divide = "before", transport, scaling = "none", shard = "none", gather;
};

/// The number of replicas goes to `options`.
void add_replica_options(CLI::App& app, ReplicaWords& w, TrainOptions& options);

/// What the words mean. Throws std::invalid_argument.
AllReduceOptions all_reduce_of(const ReplicaWords& w);
ShardOptions shard_of(const ReplicaWords& w);

} // namespace amp::train_tool

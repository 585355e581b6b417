// The network that a command line of amp-train describes.
#pragma once

#include <ampscope/sim/train/trainer.h>

#include <CLI/CLI.hpp>

#include <cstdint>
#include <optional>
#include <string>

namespace amp::train_tool {

/// The options about the network, before they mean anything.
struct NetworkWords {
    static constexpr const char* group = "Model and data"; ///< of the help

    std::string activation, norm;
    std::optional<std::int64_t> width{}, depth{}, heads{}, kv_heads{}, hidden{}, norm_groups{};
    ModelOptions model{};
};

void add_network_options(CLI::App& app, NetworkWords& w);

/// The row that is named, and what differs from it. Throws std::invalid_argument.
ModelOptions model_of(const NetworkWords& w);

} // namespace amp::train_tool

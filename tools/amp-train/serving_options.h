// The options of amp-train about a trained network as it is served.
#pragma once

#include <ampscope/tools/amp-train/options.h>
#include <ampscope/tools/amp-train/precisions.h>

#include <CLI/CLI.hpp>

namespace amp::train_tool {

/// The words, before they mean anything.
struct ServingWords {
    std::string weights_as, activations_as, kv_cache;
    std::vector<std::string> against{};
};

void add_serving_options(CLI::App& app, ServingWords& words, TrainToolOptions& options);

/// `attention`: the text of --attention. Throws std::invalid_argument.
void interpret_serving(const CLI::App& app, const ServingWords& words, const PrecisionWords& precisions,
                       const std::string& attention, TrainToolOptions& options);

} // namespace amp::train_tool

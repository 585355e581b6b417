// What amp-train was asked to do.
#pragma once

#include <ampscope/sim/train/experiment.h>
#include <ampscope/sim/train/serving.h>

#include <optional>

namespace amp::train_tool {

struct TrainToolOptions {
    std::vector<TrainOptions> runs;
    std::filesystem::path text, npz; ///< data other than the model's own
    std::int64_t context = 64, modulus = 31;
    ExperimentOptions experiment{};
    bool explain = false, memory = false;
    std::filesystem::path evaluate{}; ///< a run to evaluate as served; empty: train
    Serving serving{};
    std::string json;               ///< path of the report, or "-"
    std::vector<std::string> notes; ///< what the user should be told of the options
};

/// Who writes a file: its first entries.
nlohmann::ordered_json origin();

/// The exit status if there is nothing more to do: after --help, --version or wrong usage.
std::optional<int> parse_train_command(int argc, char** argv, TrainToolOptions& options);

/// Throws FileError, std::invalid_argument.
Dataset dataset_of(const TrainToolOptions& options, const TrainOptions& run);

} // namespace amp::train_tool

// The command line of amp-train.
#pragma once

#include <ampscope/sim/train/experiment.h>
#include <ampscope/sim/train/serving.h>

#include <functional>
#include <optional>

namespace amp::train_tool {

struct TrainToolOptions {
    std::vector<TrainOptions> runs;
    std::filesystem::path text, npz; ///< paths of data to use instead of the model's own
    std::int64_t context = 64, modulus = 31;
    ExperimentOptions experiment{};
    bool explain = false, memory = false;
    std::filesystem::path evaluate{}; ///< a run to evaluate in formats of serving; empty: train
    Serving serving{};
    std::string serving_words{};           ///< its formats, to be added to the name of a precision: ", KV cache e4m3"
    std::string attention{};               ///< The evaluated network has it, or the served one; empty: as trained.
    std::filesystem::path exported{};      ///< the folder of --export
    std::vector<std::string> against{};    ///< precisions in which it is served: see precision_against(); empty: none
    std::int64_t against_batch = 0;        ///< examples that serving computes at once; 0: as in training
    std::optional<Precision> trained_as{}; ///< what stands for the precision of training; none: the run's own
    std::size_t worst = 10;                ///< rows of a table of ops; 0: all
    std::string json;                      ///< output path of the report, or "-" for standard output
    std::vector<std::string> notes;        ///< notes for the user on the options
    /// Returns the text of an error of the library as users of the command line are told it.
    std::function<std::string(const std::string& what)> wording{};
    bool alone = false; ///< train alone, though this is one of several processes of MPI
};

/// Returns an exit code where the program ends here (--help, --version, --list); throws UsageError.
std::optional<int> parse_train_command(int argc, char** argv, TrainToolOptions& options);

/// What --list prints: the rows of all tables, each in a line.
std::string list_of_names();

/// Throws FileError, std::invalid_argument.
Dataset dataset_of(const TrainToolOptions& options, const TrainOptions& run);

} // namespace amp::train_tool

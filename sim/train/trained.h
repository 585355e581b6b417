// A network that was trained, read back from the last checkpoint of its run or from Hugging Face's form, and made to
// compute on validation data.
#pragma once

#include <ampscope/sim/backend/cpu/cpu.h>
#include <ampscope/sim/train/trainer.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace amp {

struct TrainedNetwork {
    std::filesystem::path path; ///< the folder that it was read from
    TrainOptions options;
    Dataset data; ///< its vocabulary is the network's, which may be larger than that of the text
    std::map<std::string, std::vector<float>> tensors; ///< parameters, running statistics and scales by name, in FP32
    std::optional<std::int64_t> steps{};               ///< how many it was trained for; none: not known
};

/// The options of a run, from its run.json, or of a network in Hugging Face's form (published.h), which computes in
/// FP32. Throws FileError.
TrainOptions trained_options(const std::filesystem::path& path);

/// The options with another attention, as op::attention_options() reads it; an empty text leaves them as they are.
/// Throws std::invalid_argument for models that are no decoders.
TrainOptions with_attention(TrainOptions options, const std::string& attention);

/// Reads it with those options. Throws FileError if there is no checkpoint or the data are not the run's.
TrainedNetwork read_trained(const std::filesystem::path& path, const TrainOptions& options, const Dataset& data);

/// Throws std::invalid_argument for a precision that this network could not be trained in, and for one whose delayed
/// scales the training did not leave: those of another recipe, or of none.
void check_precision(const TrainedNetwork& trained, const Precision& precision);

/// Writes the network of a run's last checkpoint to a folder, in Hugging Face's form. Throws FileError.
void export_trained(const std::filesystem::path& run, const TrainOptions& options, const Dataset& data,
                    const std::filesystem::path& folder);

/// The network on the processor, in a precision of its own, with the trained parameters, rounded to the nearest where
/// the precision keeps them in a narrower format. `batch` sequences or examples are computed at once; stochastic casts
/// draw what they drew in the last step. Throws FileError for parameters that are missing or of another shape. For
/// delayed scales see check_precision(), for `attention` with_attention().
class LoadedNetwork {
  public:
    LoadedNetwork(const TrainedNetwork& trained, const Precision& precision, std::int64_t batch, int threads,
                  const std::string& attention = {});

    Program program{};
    Network network{};
    std::vector<TensorId> parameters{};
    std::unique_ptr<Cpu> backend{}; ///< its context is that of evaluation
};

} // namespace amp

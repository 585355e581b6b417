// The magnitudes of recorded gradients by tensor and step, read from the histograms.jsonl of a run folder or measured
// from gradients in files.
#pragma once

#include <ampscope/sim/analysis/histogram.h>
#include <ampscope/sim/io/recording.h>

#include <nlohmann/json_fwd.hpp>

#include <functional>
#include <string>
#include <vector>

namespace amp {

/// The magnitudes of one tensor in one step.
struct RecordedMagnitudes {
    std::int64_t step = 0;
    std::string tensor;
    TensorKind kind = TensorKind::weight_gradient;
    std::string format; ///< format that the gradient had or is stored in ("fp16"); empty if that is not a format
    double scale = 1;   ///< loss scale by which the recorded values are multiplied
    double divided = 1; ///< the loss scale of the record by which they were divided when they were measured
    MagnitudeHistogram magnitudes{}; ///< histogram of the values as recorded
    Censoring censoring{};           ///< what the record of a gradient hides, without the loss scale
};

/// What the record of a gradient hides, by its histogram without the loss scale; nothing for tensors of other kinds.
/// `scale`: the one that it was recorded under.
Censoring censoring_of(const RecordedTensor& tensor, const MagnitudeHistogram& unscaled, double scale);

/// A line of histograms.jsonl.
nlohmann::ordered_json histogram_line(const RecordedMagnitudes& recorded);

using MagnitudesSink = std::function<void(const RecordedMagnitudes&)>;

/// Reads histograms.jsonl line by line; does nothing if there is no such file. Lines that cannot be read are left out
/// with a warning; an incomplete last line is left out silently, since the run may still be writing it. If lines repeat
/// a step and tensor, the last counts, as in metrics.jsonl, with a warning. The run.json beside it, if there is one,
/// tells in which format backward computed gradients. `progress` is called with the number of
/// bytes read since the last call. Throws FileError if it is not a regular file, a line is longer than longest_line, or
/// no line can be read.
void read_histogram_log(const std::filesystem::path& file, const MagnitudesSink& sink,
                        std::vector<std::string>& warnings, const std::function<void(std::uint64_t)>& progress = {});

/// Measures gradients in files, or in the files of a run folder. Values are divided by the recorded scale, so `scale`
/// is 1. Files that cannot be read are left out, and each adds a line to `errors`.
void measure_gradients(const Recording& recording, int threads, const MagnitudesSink& sink,
                       std::vector<std::string>& errors, const std::function<void(std::uint64_t)>& progress = {});

} // namespace amp

// The magnitudes of recorded gradients, tensor by tensor and step by step: from the histograms.jsonl of a run folder,
// or measured from gradients in files.
#pragma once

#include <ampscope/sim/analysis/histogram.h>
#include <ampscope/sim/io/recording.h>

#include <nlohmann/json_fwd.hpp>

#include <functional>
#include <string>
#include <vector>

namespace amp {

/// One tensor in one step.
struct RecordedMagnitudes {
    std::int64_t step = 0;
    std::string tensor;
    GradientKind kind = GradientKind::weight;
    std::string format; ///< that the gradient had, or as it is stored: "fp16"; empty where that is no format
    double scale = 1;   ///< the loss scale that the values contain
    MagnitudeHistogram magnitudes{}; ///< of the values as recorded
};

/// A line of histograms.jsonl.
nlohmann::ordered_json histogram_line(const RecordedMagnitudes& recorded);

using MagnitudesSink = std::function<void(const RecordedMagnitudes&)>;

/// histograms.jsonl, a line at a time; nothing where there is no such file. Lines that cannot be read are left out with
/// a warning; a last line that is not complete without a word, since the run may still be writing it. Of lines of the
/// same step and tensor the last counts, as it does in metrics.jsonl, with a warning. `progress` is told of bytes read
/// since the last call. Throws FileError for what is no regular file, a line longer than longest_line, or a file of
/// which no line can be read.
void read_histogram_log(const std::filesystem::path& file, const MagnitudesSink& sink,
                        std::vector<std::string>& warnings, const std::function<void(std::uint64_t)>& progress = {});

/// Gradients in files, or in the files of a run folder; values are divided by the recorded scale, which is then 1.
/// Files that cannot be read are left out, and become a line of `errors` each.
void measure_gradients(const Recording& recording, int threads, const MagnitudesSink& sink,
                       std::vector<std::string>& errors, const std::function<void(std::uint64_t)>& progress = {});

} // namespace amp

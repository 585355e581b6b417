// What is known about the gradients of each step of a run, from its run folder, from gradients in files or from a log.
#pragma once

#include <ampscope/sim/base/progress.h>
#include <ampscope/sim/findings/loss_scale_replay.h>
#include <ampscope/sim/io/step_log.h>

#include <filesystem>
#include <string>
#include <vector>

namespace amp {

/// A loss scaler and the text that describes it: a table row with changes, as scaler_options() reads it.
struct NamedScaler {
    std::string name;
    LossScalerOptions options;
};

/// The scaler that the text describes. Throws std::invalid_argument.
NamedScaler named_scaler(const std::string& text);

/// Options for reading a run.
struct GradientLogOptions {
    FormatSpec format = amp::format("fp16");            ///< format of gradients in backward
    LogColumns columns;                                 ///< names of a log's columns, if they are not the usual ones
    NamedScaler recorded_under = named_scaler("torch"); ///< scaler assumed for logs without a scale
    std::optional<double> recorded_scale;               ///< loss scale of gradients in files, whatever they state
    int threads = 0;                                    ///< 0: every core; results do not depend on it
};

/// The gradients of one run, by step. Magnitudes do not contain the loss scale.
struct GradientLog {
    std::string name;                  ///< the path as given
    std::string recorded;              ///< how the run was recorded, in words: "amp-fp16, loss scaler torch"
    std::string backward;              ///< the format in which backward computed gradients; empty: not known
    std::vector<GradientStep> steps;   ///< ascending; a hidden step also represents the missing steps after it
    std::int64_t recorded_steps = 0;   ///< steps that are not hidden
    std::int64_t hidden_steps = 0;     ///< steps of which nothing is known, since their lines cannot be read
    std::vector<ScaleChange> scales;   ///< the recorded loss scale; empty if none was recorded
    std::vector<std::int64_t> skipped; ///< steps recorded as overflowing
    std::vector<std::string> warnings;
    std::vector<std::string> errors; ///< files that cannot be read and were left out

    /// Number of steps whose magnitudes were recorded, so that underflow can be counted.
    [[nodiscard]] std::size_t measured_steps() const;
    /// Whether the log has a magnitude at all: that of a gradient which is finite and not zero.
    [[nodiscard]] bool has_magnitudes() const;
};

/// Reads metrics.jsonl and histograms.jsonl of a run folder; or any program's log (.csv, .tsv, .jsonl, .json, .ndjson,
/// a pipe), which has no more than amax; or gradients in a file or folder, which are measured. Progress is reported in
/// bytes. Throws FileError, or RecordingError with a line for each file, if nothing can be read, and
/// std::invalid_argument for a recorded_scale of what has a log.
GradientLog read_gradient_log(const std::filesystem::path& path, const GradientLogOptions& options,
                              const Watch& watch = {});

/// The run folders in a folder, sorted, if it is not a run folder itself; any other path is returned as it is. A run
/// folder that may not be searched adds a line to `errors`.
std::vector<std::filesystem::path> logged_runs(const std::filesystem::path& path, std::vector<std::string>& errors);

} // namespace amp

// What is known of the gradients of each step of a run: from its run folder, from gradients in files or from a log.
#pragma once

#include <ampscope/sim/base/progress.h>
#include <ampscope/sim/findings/loss_scale_replay.h>
#include <ampscope/sim/io/step_log.h>

#include <filesystem>
#include <string>
#include <vector>

namespace amp {

/// A loss scaler with the text that names it: a row and what differs from it, as scaler_options() takes it.
struct NamedScaler {
    std::string name;
    LossScalerOptions options;
};

/// The scaler of that text. Throws std::invalid_argument.
NamedScaler named_scaler(const std::string& text);

/// How a run is read.
struct GradientLogOptions {
    FormatSpec format = amp::format("fp16");            ///< the format of gradients in backward
    LogColumns columns;                                 ///< of logs, where they have other names than the usual
    NamedScaler recorded_under = named_scaler("torch"); ///< it made the log, where that says no scale but overflows
    int threads = 0;                                    ///< 0: every core; results do not depend on it
};

/// One run. Magnitudes are those of gradients without the loss scale.
struct GradientLog {
    std::string name;                  ///< the path, as it was given
    std::string recorded;              ///< how, in words: "amp-fp16, loss scaler torch"
    std::vector<GradientStep> steps;   ///< ascending; hidden ones stand for themselves and the gap behind them
    std::int64_t recorded_steps = 0;   ///< steps that are not hidden
    std::int64_t hidden_steps = 0;     ///< steps of which nothing is known: their lines cannot be read
    std::vector<ScaleChange> scales;   ///< the loss scale as recorded; empty where none was
    std::vector<std::int64_t> skipped; ///< steps that overflowed, as recorded
    std::vector<std::string> warnings;
    std::vector<std::string> errors; ///< files that cannot be read, and are left out

    /// Steps of which magnitudes were recorded, so that underflow can be counted.
    [[nodiscard]] std::size_t measured_steps() const;
};

/// Reads metrics.jsonl and histograms.jsonl of a run folder; a log of any program (.csv, .tsv, .jsonl, .json, .ndjson,
/// a pipe), which knows amax at most; or gradients in a file or folder, which are measured. The watch is told of bytes.
/// Throws FileError, or RecordingError with a line for each file, for an input of which nothing can be read.
GradientLog read_gradient_log(const std::filesystem::path& path, const GradientLogOptions& options,
                              const Watch& watch = {});

/// The run folders in a folder, sorted, for which it stands unless it is one itself; any other path stands for itself.
/// A run folder that may not be searched adds a line to `errors`.
std::vector<std::filesystem::path> logged_runs(const std::filesystem::path& path, std::vector<std::string>& errors);

} // namespace amp

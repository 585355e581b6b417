// What happened in each step of a run: the metrics.jsonl of a run folder, or a CSV or JSONL log of any program.
#pragma once

#include <ampscope/sim/io/tensor_file.h>

#include <nlohmann/json.hpp>

#include <functional>

namespace amp {

/// One step. Magnitudes are those of gradients without the loss scale, finite ones only; a loss may be infinite or NaN.
struct StepMetrics {
    std::int64_t step = 0;
    std::optional<double> loss, scale, amax_weight, amax_activation;
    std::optional<bool> found_inf;
};

/// Names of a log's columns, where they are not the usual ones.
struct LogColumns {
    std::string step, amax, found_inf, scale;
    bool amax_scaled = false;    ///< the magnitudes still contain the scale
    bool losses_suffice = false; ///< a log that tells nothing of overflows will do
};

/// Told of every step that counts, in the order of the file, with all that its line says.
using StepSink = std::function<void(const StepMetrics& step, const nlohmann::ordered_json& line)>;

inline constexpr std::size_t most_logged_steps = 5'000'000; ///< in one log; they take 0.8 GB while it is read
inline constexpr std::int64_t longest_run = 20'000'000;      ///< steps from the first to the last, missing ones too

struct StepLog {
    std::vector<StepMetrics> steps; ///< ascending, each once
    /// Steps hidden by lines that cannot be read, ascending: nothing is known of them, nor of the missing steps that
    /// follow them.
    std::vector<std::int64_t> hidden;
    std::vector<std::string> warnings;
};

/// Reads metrics.jsonl of a run folder, an object a line (.jsonl, .json, .ndjson, a pipe), or a table whose first line
/// names its columns (.csv, .tsv, a pipe that does not begin with an object). Bare NaN and Infinity, as Python's
/// json.dumps writes them, are numbers. A last line that is not complete is left out, since the run may still be
/// writing it; so are lines that cannot be read and steps that come again (the last one counts), each with a warning;
/// missing steps are warned of. `progress` is told of bytes read since the last call; for a `sink` the file is read
/// twice.
/// Throws FileError where nothing can be read, no column tells of overflows, a line is longer than longest_line, there
/// are more than most_logged_steps, or the last is longest_run away from the first: one of the two must be wrong.
StepLog read_step_log(const std::filesystem::path& path, const LogColumns& columns = {},
                      const std::function<void(std::uint64_t bytes)>& progress = {}, const StepSink& sink = {});

/// run.json of a run folder, as it is; null where there is none. Throws FileError for a file that is no JSON object.
nlohmann::ordered_json read_run_configuration(const std::filesystem::path& folder);

} // namespace amp

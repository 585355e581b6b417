// The metrics of each step of a run, from metrics.jsonl of a run folder or from any program's CSV or JSONL log.
#pragma once

#include <ampscope/sim/io/run_facts.h>
#include <ampscope/sim/io/tensor_file.h>

#include <nlohmann/json.hpp>

#include <functional>
#include <span>

namespace amp {

/// Metrics of one step. The magnitudes are those of finite gradients, without the loss scale. A loss may be infinite or
/// NaN.
struct StepMetrics {
    std::int64_t step = 0;
    std::optional<double> loss, scale, amax_weight, amax_activation;
    std::optional<bool> found_inf;
    std::optional<double> gradient_norm; ///< finite; as logged: without the loss scale, and before clipping, as a rule
};

/// Whether the step was skipped, not taken: as its line of a log says; if it does not, a step that overflowed was.
bool was_skipped(const StepMetrics& step, const nlohmann::ordered_json& line);

/// Names of a log's columns, if they are not the usual ones.
struct LogColumns {
    std::string step, amax, found_inf, scale;
    bool amax_scaled = false;    ///< the log's gradient magnitudes are still multiplied by the loss scale
    bool losses_suffice = false; ///< accept a log that says nothing about overflows
};

/// Called for every step that counts, in the order of the file, with all that its line holds.
using StepSink = std::function<void(const StepMetrics& step, const nlohmann::ordered_json& line)>;

inline constexpr std::size_t most_logged_steps = 5'000'000; ///< steps in one log; they take 1.2 GB while it is read
inline constexpr std::int64_t longest_run = 20'000'000;     ///< steps between the first and the last

struct StepLog {
    std::vector<StepMetrics> steps; ///< ascending by step, each step once
    /// Steps that stood on lines that cannot be read, ascending. Nothing is known of them, nor of the missing steps
    /// that follow them.
    std::vector<std::int64_t> hidden;
    std::vector<std::string> warnings;
};

/// Reads metrics.jsonl of a run folder, a file with an object a line (.jsonl, .json, .ndjson, a pipe), or a table whose
/// first line names its columns (.csv, .tsv, a pipe that does not begin with an object). Bare NaN and Infinity, as
/// Python's json.dumps writes them, are numbers. An incomplete last line is left out, since the run may still be
/// writing it; so are lines that cannot be read and repeated steps (the last one counts), each with a warning; missing
/// steps are warned of. `progress` is called with the number of bytes read since the last call. With a `sink` the file
/// is read twice.
/// Throws FileError if nothing can be read, no column tells of overflows, a line is longer than longest_line, there are
/// more than most_logged_steps, or first and last step are longest_run or more apart: one of the two must be wrong.
StepLog read_step_log(const std::filesystem::path& path, const LogColumns& columns = {},
                      const std::function<void(std::uint64_t bytes)>& progress = {}, const StepSink& sink = {});

/// Of how many of its last losses a run's final loss is the mean: a tenth of them, but at least ten.
std::size_t final_losses(std::size_t logged);
/// The mean of these; NaN if one of them is, or if there are none.
double final_loss_of(std::span<const double> losses);

/// run.json of a run folder; null if there is none. Throws FileError if it is not a JSON object.
nlohmann::ordered_json read_run_configuration(const std::filesystem::path& folder);

/// What the run.json in a folder says; nothing if there is none, or it cannot be read.
RunFacts facts_of_run(const std::filesystem::path& folder);

/// A warning if the run folder is of a later schema version than this program knows, or its run.json cannot be read.
std::optional<std::string> newer_schema(const std::filesystem::path& folder);

} // namespace amp

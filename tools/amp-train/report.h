// What amp-train says: the plan, the progress and the table at the end.
#pragma once

#include <ampscope/sim/train/outcome.h>
#include <ampscope/sim/train/plan.h>
#include <ampscope/tools/amp-train/options.h>
#include <ampscope/tools/document/document.h>

namespace amp::train_tool {

/// The ops of a step of one run with their formats and rules.
std::string plan_report(const TrainOptions& options, const TrainingProgram& training);
/// The bytes that a run keeps, by purpose.
TableBlock memory_table(const TrainOptions& options, const TrainingProgram& training);
/// Where the time of a run's steps went, the longest first.
TableBlock profile_table(const Run& run);
/// One line: steps, speed, losses, scales and skips of all runs.
std::string progress_line(const Experiment& experiment, std::int64_t of, std::string_view speed);
/// What the terminal says of runs at their end, and of a run that is served in narrow formats.
Document document_of(std::span<const Outcome> outcomes, const ExperimentOptions& options, const std::string& title);
Document document_of(const std::filesystem::path& run, std::span<const ServedResult> results);
std::string served_json(const std::filesystem::path& run, std::span<const ServedResult> results);

} // namespace amp::train_tool

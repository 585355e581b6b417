// Refuses or notes options of amp-train that have no effect in a given command.
#pragma once

#include <ampscope/tools/amp-train/options.h>

namespace CLI {
class App;
}

namespace amp::train_tool {

/// Throws std::invalid_argument for options that ask for a report or a recording together with `mode`, which makes
/// none.
void refuse_reports(const CLI::App& app, const char* mode);

/// Throws std::invalid_argument for options that have no effect on what amp-train was asked to do.
void refuse_unused(const CLI::App& app, const TrainToolOptions& options);

/// Adds notes on options that none of the runs can use. They are not refused: a file of options serves many commands.
void note_unused(const CLI::App& app, TrainToolOptions& options);

} // namespace amp::train_tool

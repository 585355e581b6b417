// Options of amp-train that can do nothing, which the user takes for something.
#pragma once

#include <ampscope/tools/amp-train/options.h>

namespace CLI {
class App;
}

namespace amp::train_tool {

/// Throws std::invalid_argument for what asks for a report or a recording beside an option that makes none.
void refuse_reports(const CLI::App& app, const char* mode);

/// Throws std::invalid_argument for an option that what amp-train was asked to do leaves without effect.
void refuse_unused(const CLI::App& app, const TrainToolOptions& options);

/// Adds notes on options that none of the runs can use. They are not refused: a file of options serves many commands.
void note_unused(const CLI::App& app, TrainToolOptions& options);

} // namespace amp::train_tool

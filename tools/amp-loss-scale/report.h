// What amp-loss-scale says: tables, advice, JSON, the picture of scales over steps.
#pragma once

#include <ampscope/tools/amp-loss-scale/collect.h>

namespace amp::loss_scale_tool {

/// One input with its replays.
struct ReplayedLog {
    GradientLog log;
    std::vector<Replay> replays;    ///< one for each of the options' scalers
    std::vector<SweptScaler> swept; ///< where --sweep asks for it
    Recommendation recommendation;  ///< of all recorded magnitudes; without any, of the largest of each step
};

ReplayedLog replay_log(GradientLog log, const LossScaleOptions& options);

std::string terminal_report(const std::vector<ReplayedLog>& logs, const LossScaleOptions& options, bool color);

/// Schema version 1. No time, no host: the same input gives the same bytes.
std::string json_report(const std::vector<ReplayedLog>& logs, const std::vector<std::string>& errors,
                        const LossScaleOptions& options);

std::string svg_report(const std::vector<ReplayedLog>& logs, const LossScaleOptions& options);

/// Where to start, and what the named scalers cost, in a few sentences.
std::string advice(const ReplayedLog& log, const LossScaleOptions& options);

} // namespace amp::loss_scale_tool

// Makes one report of a whole recording of the reports of its shards.
#pragma once

#include <ampscope/sim/findings/histogram_report.h>

namespace amp::detail {

/// A report, and where it comes from.
struct NamedReport {
    std::filesystem::path path;
    HistogramReport report;
};

/// Joins reports of shards of one recording: tensors in its order, their parts made whole, as a report of all of it
/// has them. Adds to `errors` which shards are missing or in several reports, which tensors are left out for that, and
/// what the reports themselves could not read.
HistogramReport join_shards(std::vector<NamedReport> shards, const HistogramOptions& options,
                            std::vector<std::string>& errors);

} // namespace amp::detail

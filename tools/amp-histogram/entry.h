// The rows of a report: tensors, groups of tensors, and their total.
#pragma once

#include <ampscope/sim/analysis/block_scales.h>
#include <ampscope/sim/analysis/cast_error.h>
#include <ampscope/tools/amp-histogram/options.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace amp::histogram_tool {

/// One tensor, or several merged. Magnitudes are those of the recorded values divided by the recorded scale.
struct Entry {
    std::string file, name, layer;
    std::optional<std::int64_t> step;
    GradientKind kind = GradientKind::weight;
    std::string dtype; ///< empty: differs among the merged tensors
    std::vector<std::uint64_t> shape;
    std::optional<double> recorded_scale; ///< none: differs among the merged tensors
    std::uint64_t tensors = 1;

    MagnitudeStatistics magnitudes;
    DirectedHistogram directed; ///< where the rounding takes it
    /// By format name and scale: the counts that do not follow from the histograms, and the errors asked for.
    std::map<std::pair<std::string, double>, CastCounts> own;
    std::map<std::pair<std::string, double>, CastError> errors;
    BlockStatistics blocks; ///< of the elements as recorded; their scales take a loss scale out again
};

/// What one format makes of an entry at one scale.
struct ScaleCounts {
    double scale = 1;
    CastCounts counts;
};

struct FormatResult {
    std::vector<ScaleCounts> scales; ///< ascending: 1, the recommended one, those asked for
    Recommendation recommendation;
};

/// Counts at 2^log2_scale from the histograms: exact, or under stochastic rounding the worst the random bits can do.
ClassCounts classes_at(const Entry& entry, const FormatSpec& format, int log2_scale, const HistogramOptions& options);

Recommendation recommendation(const Entry& entry, const FormatSpec& format, const HistogramOptions& options);

/// Counts at one scale: from the histograms where that is exact, else those of the entry's own pass.
CastCounts counts_at(const Entry& entry, const FormatSpec& format, double scale, const HistogramOptions& options);

/// Whether counts_at() knows this scale.
bool knows(const Entry& entry, const FormatSpec& format, double scale, const HistogramOptions& options);

/// Every format and scale that the options and their gates ask for, besides recommended scales.
std::vector<std::pair<FormatSpec, double>> wanted_counts(const HistogramOptions& options);

FormatResult format_result(const Entry& entry, const FormatSpec& format, const HistogramOptions& options);

/// Adds `other` to `sum`: histograms, extremes, own counts; what differs in dtype and recorded scale becomes unknown.
void merge_into(Entry& sum, const Entry& other);

/// Entries grouped as --by says, in order of first appearance; the name of a group is its layer, step or file.
std::vector<Entry> grouped_entries(const std::vector<Entry>& tensors, Grouping by);

/// All of them as one, with shape {count}.
Entry total_of(const std::vector<Entry>& tensors);

} // namespace amp::histogram_tool

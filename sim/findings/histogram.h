// Which recorded gradients underflow, turn subnormal or overflow in which format, and which loss scale saves them: from
// files to exact counts.
#pragma once

#include <ampscope/formats/policy.h>
#include <ampscope/sim/analysis/block_scales.h>
#include <ampscope/sim/analysis/cast_count.h>
#include <ampscope/sim/analysis/cast_error.h>
#include <ampscope/sim/analysis/gate.h>
#include <ampscope/sim/analysis/histogram.h>
#include <ampscope/sim/base/progress.h>
#include <ampscope/sim/io/recording.h>

#include <filesystem>
#include <map>
#include <optional>
#include <regex>
#include <string>
#include <utility>
#include <vector>

namespace amp {

/// What tensors are put together by.
enum class Grouping : std::uint8_t { tensor, layer, step, file, all };
inline constexpr std::array<std::string_view, 5> grouping_names = {"tensor", "layer", "step", "file", "all"};

/// What is asked of a recording.
struct HistogramOptions {
    OpenOptions open;                     ///< element types and shapes of files that do not say theirs
    std::vector<FormatSpec> formats;      ///< at least one; formats of numbers, not of scales
    std::vector<double> scales;           ///< loss scales besides 1 and the recommended one; ascending, each once
    std::optional<double> recorded_scale; ///< the loss scale that the values still contain; none: as the files say
    Policy policy;                        ///< how a cast rounds, and what it does with subnormals and overflow
    RecommendationOptions recommendation; ///< of a loss scale
    std::uint64_t block = 0;              ///< elements that share a scale; 0: no blocks are measured
    bool error = false;                   ///< also measure the error of each cast
    std::optional<std::regex> tensor;     ///< only tensors whose names contain a match
    std::optional<std::pair<std::int64_t, std::int64_t>> steps; ///< only these, both included
    Grouping by = Grouping::tensor;
    std::vector<Gate> gates; ///< limits on the total
    int threads = 0;         ///< 0: every core; results do not depend on it

    [[nodiscard]] CastRule rule() const { return {policy.rounding, policy.flushes_output()}; }
    /// Whether counts at this scale follow from the histograms; if not they take a pass of their own.
    [[nodiscard]] bool from_histogram(double scale) const;
    /// Whether `tensor` and `steps` select this one.
    [[nodiscard]] bool selects(const std::string& name, const std::optional<std::int64_t>& step) const;
};

/// One tensor, or several merged. Magnitudes are those of the recorded values divided by the recorded scale.
struct HistogramEntry {
    std::string file, name, layer;
    std::optional<std::int64_t> step; ///< none: the file does not say
    GradientKind kind = GradientKind::weight;
    std::string dtype; ///< name of the element type; empty: differs among the merged tensors
    std::vector<std::uint64_t> shape;
    std::optional<double> recorded_scale; ///< none: differs among the merged tensors
    std::uint64_t tensors = 1;

    MagnitudeStatistics magnitudes;
    DirectedHistogram directed; ///< where the rounding takes an element, for roundings that are not to nearest
    /// By format name and scale: the counts that do not follow from the histograms, and the errors asked for.
    std::map<std::pair<std::string, double>, CastCounts> own;
    std::map<std::pair<std::string, double>, CastError> errors;
    BlockStatistics blocks;           ///< of the elements as recorded; their scales take a loss scale out again
    std::vector<CastCounts> unscaled; ///< at scale 1, one for each of the options' formats
};

/// What one format makes of an entry at one scale.
struct ScaleCounts {
    double scale = 1;
    CastCounts counts;
};

/// What one format makes of an entry.
struct FormatCounts {
    std::vector<ScaleCounts> scales; ///< ascending: 1, the recommended one, those asked for
    Recommendation recommendation;
};

/// The outcome of one gate on the total.
struct GateResult {
    Gate gate;
    double part = 0;         ///< a count; under stochastic rounding an expectation
    std::uint64_t whole = 0; ///< the denominator, or 0 where the gate counts elements
    bool holds = false;

    /// A share of no elements; such a gate does not hold.
    [[nodiscard]] bool empty() const { return gate.denominator != Denominator::none && whole == 0; }
};

/// What formats make of recorded gradients.
struct HistogramFindings {
    std::vector<HistogramEntry> tensors; ///< in the order of the recording
    std::vector<HistogramEntry> groups;  ///< as Grouping says, in the order of appearance; empty for Grouping::tensor
    HistogramEntry total;
    std::vector<FormatCounts> formats; ///< of the total, one for each of the options' formats
    std::vector<std::string> advice;   ///< what to do about each format, in one or two sentences
    std::vector<GateResult> gates;     ///< in the order of the options
    std::vector<std::string> errors;   ///< files that cannot be read, of which nothing is counted
    std::vector<std::string> warnings;
};

/// Reads and counts the tensors of files and folders, run folders among them, as far as the options select them. The
/// watch is told of bytes.
///
/// What cannot be read is among the errors; so is a line if the options select nothing. Throws std::invalid_argument
/// for a number of threads that is out of range.
HistogramFindings histogram_findings(const std::vector<std::filesystem::path>& paths, const HistogramOptions& options,
                                     const Watch& watch = {});

/// The same from JSON reports of amp-histogram (see histogram_report.h), which were counted with the same options. A
/// tensor that is in several reports counts once. In whatever order reports are named the result is the same.
HistogramFindings merged_histogram_findings(const std::vector<std::filesystem::path>& reports,
                                            const HistogramOptions& options);

/// Counts at 2^log2_scale from the histograms: exact, or under stochastic rounding the worst the random bits can do.
ClassCounts classes_at(const HistogramEntry& entry, const FormatSpec& format, int log2_scale,
                       const HistogramOptions& options);

/// The loss scale that suits an entry.
Recommendation recommendation_of(const HistogramEntry& entry, const FormatSpec& format,
                                 const HistogramOptions& options);

/// Counts at one scale: from the histograms where that is exact, else those of the entry's own pass. Throws
/// std::out_of_range for a scale that none was made for.
CastCounts counts_at(const HistogramEntry& entry, const FormatSpec& format, double scale,
                     const HistogramOptions& options);

/// Whether counts_at() knows this scale.
bool knows(const HistogramEntry& entry, const FormatSpec& format, double scale, const HistogramOptions& options);

/// Every format and scale that the options and their gates ask for, besides recommended scales.
std::vector<std::pair<FormatSpec, double>> wanted_counts(const HistogramOptions& options);

/// Recommended scale, and counts at all scales that are known.
FormatCounts format_counts(const HistogramEntry& entry, const FormatSpec& format, const HistogramOptions& options);

/// Entries by the share that becomes zero or overflows in the first format at scale 1, among equals in the next, then
/// by size: most first.
std::vector<const HistogramEntry*> worst_first(const std::vector<HistogramEntry>& entries);

} // namespace amp

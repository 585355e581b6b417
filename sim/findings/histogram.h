// Which recorded gradients underflow, become subnormal or overflow in which format, and which loss scale prevents it;
// and which formats hold recorded weights and activations, to which no loss scale applies: reads files and counts
// exactly.
#pragma once

#include <ampscope/formats/policy.h>
#include <ampscope/sim/analysis/block_scales.h>
#include <ampscope/sim/analysis/cast_count.h>
#include <ampscope/sim/analysis/cast_error.h>
#include <ampscope/sim/analysis/format_fit.h>
#include <ampscope/sim/analysis/gate.h>
#include <ampscope/sim/analysis/histogram.h>
#include <ampscope/sim/analysis/scale_curves.h>
#include <ampscope/sim/base/progress.h>
#include <ampscope/sim/findings/histogram_recipe.h>
#include <ampscope/sim/io/recording.h>

#include <filesystem>
#include <map>
#include <optional>
#include <regex>
#include <string>
#include <utility>
#include <vector>

namespace amp {

/// How tensors are grouped.
/// `pattern`: tensors whose names differ only in components that are numbers, as those of the blocks of a network do.
enum class Grouping : std::uint8_t { tensor, layer, pattern, step, file, kind, all };
inline constexpr std::array<std::string_view, 7> grouping_names = {"tensor", "layer", "pattern", "step",
                                                                   "file",   "kind",  "all"};

/// Options for counting a recording.
struct HistogramOptions {
    OpenOptions open;                     ///< element types and shapes of files that do not state theirs
    std::vector<FormatSpec> formats;      ///< at least one; formats of numbers, not of scales
    std::vector<double> scales;           ///< loss scales besides 1 and the recommended one; ascending, each once
    std::optional<double> recorded_scale; ///< loss scale that the values contain; none: as the files say
    Policy policy;                        ///< how a cast rounds, and what it does with subnormals and overflow
    RecommendationOptions recommendation; ///< how to recommend a loss scale
    std::uint64_t block = 0;              ///< number of elements that share a scale; 0: blocks are not measured
    bool error = false;                   ///< measure the error of each cast, too
    std::vector<RecipeChoice> recipes;    ///< scaling recipes to try; each text once
    std::size_t worst_blocks = 10;        ///< number of a recipe's worst blocks to keep
    bool all_blocks = false;              ///< keep all blocks of single tensors
    std::optional<std::regex> tensor;     ///< only tensors whose names contain a match
    std::optional<KindSet> kinds;         ///< only these kinds; none: gradients, or everything in merged reports
    std::optional<std::pair<std::int64_t, std::int64_t>> steps; ///< first and last step to count
    Grouping by = Grouping::tensor;
    std::vector<Gate> gates; ///< limits on the total
    int threads = 0;         ///< 0: every core; results do not depend on it

    [[nodiscard]] CastRule rule() const { return {policy.rounding, policy.flushes_output()}; }
    /// What the casts of all formats and gates need beside magnitudes.
    [[nodiscard]] FineNeeds fine_needs() const;
    /// Whether counts at this scale follow from the histograms; if not, they take a pass of their own over the data.
    [[nodiscard]] bool from_histogram(double scale) const;
    /// Whether counts follow from histograms alone; if not, the first option for which they do not, such as "--block".
    [[nodiscard]] std::optional<std::string_view> needs_tensors() const;
    /// Whether `tensor` and `steps` select a tensor of that name and step.
    [[nodiscard]] bool selects(const std::string& name, const std::optional<std::int64_t>& step) const;
};

/// A tensor's place among those of a recording that is shared out and, if it is split, which part of it was counted.
struct ShardedTensor {
    std::uint64_t index = 0;          ///< position in the recording
    std::uint64_t begin = 0, end = 0; ///< the elements that were counted
    std::uint64_t elements = 0;       ///< how many it has
    ExactSum absolute{}, squares{};   ///< the sums of a part, unrounded
    std::string backward{};           ///< format in which the run's backward computes gradients; empty: not known

    [[nodiscard]] bool is_part() const { return begin != 0 || end != elements; }
};

/// What could not be counted: a file or, of a checkpoint of many files, a tensor that lies in a damaged one.
struct FailedCount {
    std::string file;                   ///< as HistogramEntry::file
    bool whole = true;                  ///< nothing of the file may be counted; else only this tensor may not
    std::uint64_t index = 0, begin = 0; ///< of a recording that is shared out: the tensor's position, and which part
    std::string damaged{};              ///< the file that the error names
    std::string error{};
};

/// Which shards of a recording were counted.
struct CountedShards {
    std::vector<std::uint64_t> numbers{}; ///< from 1, ascending
    std::uint64_t of = 1;                 ///< how many there are
    std::string recording{};              ///< a fingerprint of all that is to be counted
    std::vector<FailedCount> failed{};    ///< of what nothing may be counted, and why
};

/// One tensor, or several merged. Magnitudes are those of the recorded values divided by the recorded loss scale.
struct HistogramEntry {
    std::string file, name, layer;
    std::optional<std::int64_t> step; ///< none if the file names no step
    KindSet kinds = {};               ///< one kind, or those of the merged tensors
    std::string dtype;                ///< name of the element type; empty if the merged tensors differ in it
    std::vector<std::uint64_t> shape;
    std::optional<double> recorded_scale; ///< none if the merged tensors differ in it
    bool scale_stated = true;             ///< false if it is 1 only because the file of a gradient states none
    std::uint64_t tensors = 1;

    MagnitudeStatistics magnitudes;
    /// Magnitudes come from tensors. If not, they come from a histograms.jsonl, and only their histogram is known.
    bool measured = true;
    FineHistogram fine; ///< what HistogramOptions::fine_needs() names
    /// By format name and scale: counts that do not follow from histograms, and the errors asked for.
    std::map<std::pair<std::string, double>, CastCounts> own;
    std::map<std::pair<std::string, double>, CastError> errors;
    BlockStatistics blocks;               ///< blocks of the elements as recorded; block scales cancel a loss scale
    std::vector<CastCounts> unscaled;     ///< counts at scale 1, one for each of the options' formats
    std::vector<RecipeEffect> recipes;    ///< one for each of the options' recipes
    Censoring censoring;                  ///< what the records of gradients hide; nothing for other tensors
    std::vector<FormatFit> fits;          ///< how each of these formats holds the tensors; empty for gradients
    std::optional<ShardedTensor> shard{}; ///< for findings of shards

    /// Whether a loss scale multiplies all of it.
    [[nodiscard]] bool is_gradient() const { return kinds.within(gradient_kinds); }
    /// The largest finite magnitude as text, "1.2e+05"; where it is not known its binade, "below 2^17".
    [[nodiscard]] std::string largest_text() const;
};

/// Counts for one format at one scale.
struct ScaleCounts {
    double scale = 1;
    CastCounts counts;
};

/// Counts for one format at all scales, and for gradients the recommended loss scale.
struct FormatCounts {
    std::vector<ScaleCounts> scales; ///< ascending: 1, the recommended scale, those asked for
    Recommendation recommendation;
};

/// The selected tensors of one group of kinds, and the advice about them.
struct KindFindings {
    const KindGroup* group = nullptr;
    HistogramEntry total;
    std::vector<FormatCounts> formats; ///< counts of the total, one for each of the options' formats
    ScaleCurves scales{};              ///< what loss scales do to gradients, in each of the formats
    std::vector<std::string> advice{}; ///< for each format; before it, what no scale mends
};

/// The outcome of one gate on the total.
struct GateResult {
    Gate gate;
    double part = 0;         ///< a count; an expectation under stochastic rounding
    std::uint64_t whole = 0; ///< the denominator; 0 if the gate counts elements
    bool holds = false;

    /// Whether the gate is on a share of no elements; it does not hold then.
    [[nodiscard]] bool empty() const { return gate.denominator != Denominator::none && whole == 0; }
};

/// A report to read: a file, or a text of that name.
struct ReportSource {
    ReportSource(std::filesystem::path file) : name(std::move(file)) {}
    ReportSource(std::filesystem::path of, std::string content) : name(std::move(of)), text(std::move(content)) {}

    std::filesystem::path name;
    std::optional<std::string> text{};
};

/// The result of counting recorded gradients.
struct HistogramFindings {
    std::vector<HistogramEntry> tensors;   ///< in the order of the recording
    std::vector<HistogramEntry> groups;    ///< groups in order of appearance; empty for Grouping::tensor
    std::vector<KindFindings> kinds;       ///< in the order of kind_groups; without tensors one that is empty
    HistogramEntry total;                  ///< all selected tensors merged
    KindSet other_kinds = {};              ///< kinds of other tensors of the recording
    std::vector<GateResult> gates;         ///< in the order of the options
    std::optional<CountedShards> shards{}; ///< none: everything was counted
    std::vector<std::string> errors;       ///< files that cannot be read; nothing in them is counted
    std::vector<std::string> warnings;
};

/// Reads and counts the selected tensors of files and folders, which may be run folders. A run that recorded only
/// histograms of the selected kinds is counted by them, and once, although a copy of it may be named, too, perhaps with
/// its tensors; options that need the tensors are then an error. Progress is reported in bytes, those of every pass
/// over the data.
///
/// What cannot be read is listed in errors, and so is a selection of nothing. Throws std::invalid_argument for a number
/// of threads outside its range.
HistogramFindings histogram_findings(const std::vector<std::filesystem::path>& paths, const HistogramOptions& options,
                                     const Watch& watch = {});

/// Computes the same from JSON reports of amp-histogram (see histogram_report.h) that were counted with the same
/// options. A tensor in several reports counts once; reports of shards (histogram_shards.h) become one of the whole
/// recording, and what is missing or doubled among them is an error. The result does not depend on the order of the
/// reports.
/// Progress is reported in bytes.
HistogramFindings merged_histogram_findings(const std::vector<std::filesystem::path>& reports,
                                            const HistogramOptions& options, const Watch& watch = {});

/// The same for reports that need not be files. `asked`: the paths to name where they hold nothing that is selected.
HistogramFindings merge_histogram_reports(const std::vector<ReportSource>& reports,
                                          const std::vector<std::filesystem::path>& asked,
                                          const HistogramOptions& options, const Watch& watch = {});

/// Counts at 2^log2_scale from the histograms: exact; under stochastic rounding the worst that random bits can do.
ClassCounts classes_at(const HistogramEntry& entry, const FormatSpec& format, int log2_scale,
                       const HistogramOptions& options);

/// The recommended loss scale for an entry.
Recommendation recommendation_of(const HistogramEntry& entry, const FormatSpec& format,
                                 const HistogramOptions& options);

/// Counts at one scale: from the histograms if these suffice, else from the entry's own pass. Throws std::out_of_range
/// for a scale that had no pass.
CastCounts counts_at(const HistogramEntry& entry, const FormatSpec& format, double scale,
                     const HistogramOptions& options);

/// Whether counts_at() knows this scale.
bool knows(const HistogramEntry& entry, const FormatSpec& format, double scale, const HistogramOptions& options);

/// All formats and scales that the options and their gates ask for, without recommended scales.
std::vector<std::pair<FormatSpec, double>> wanted_counts(const HistogramOptions& options);

/// The counts at all known scales and, if the entry is of gradients, the recommended scale.
FormatCounts format_counts(const HistogramEntry& entry, const FormatSpec& format, const HistogramOptions& options);

/// Whether some tensor is a weight's gradient that a recipe has cast as a gradient: recipes cast only the gradients of
/// activations.
bool casts_weight_gradients(const HistogramFindings& findings, const HistogramOptions& options);

/// The entries of which elements are of one class (`part`: underflow, say) in some format at scale 1: those with the
/// largest share in the first format first; equal ones by the next format, then by the number of non-zero elements.
std::vector<const HistogramEntry*> worst_first(const std::vector<HistogramEntry>& entries, double CastCounts::*part);

} // namespace amp

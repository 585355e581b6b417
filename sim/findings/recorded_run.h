// One recorded run, or gradients in files, as far as a comparison needs it. Files are read once; memory does not grow
// with the number of recorded tensors times steps.
#pragma once

#include <ampscope/sim/analysis/format_fit.h>
#include <ampscope/sim/analysis/histogram_log.h>
#include <ampscope/sim/analysis/scale_curves.h>
#include <ampscope/sim/base/progress.h>
#include <ampscope/sim/base/share.h>
#include <ampscope/sim/findings/adam_effects.h>
#include <ampscope/sim/io/provenance.h>
#include <ampscope/sim/io/run_facts.h>
#include <ampscope/sim/io/step_log.h>

#include <array>
#include <limits>
#include <set>

namespace amp {

/// Formats whose underflow without a loss scale is followed over the steps.
inline constexpr std::array<std::string_view, 2> followed_formats = {"fp16", "e5m2"};

/// Divides steps into at most 64 columns of a picture.
struct StepColumns {
    std::int64_t first = 0, last = 0;

    [[nodiscard]] std::size_t count() const;
    [[nodiscard]] std::size_t of(std::int64_t step) const;      ///< column of a step; the nearest one for steps outside
    [[nodiscard]] std::int64_t begin(std::size_t column) const; ///< first step of a column
};

/// Counts of gradients without the loss scale: what a report needs of single tensors, in a tenth of an exact
/// histogram's memory.
struct GradientCounts {
    BinadeCounts binades{}; ///< counts by floor(log2|x|)
    std::uint64_t nonzero = 0, nan = 0;
    std::array<std::uint64_t, usual_formats.size()> underflow{}; ///< elements that become zero in each of usual_formats

    void add(const MagnitudeHistogram& magnitudes);
    void merge(const GradientCounts& other);
    /// The share of non-zero elements that become zero in usual_formats[f].
    [[nodiscard]] Share zeroed(std::size_t f) const { return {underflow[f], nonzero}; }
    [[nodiscard]] std::string range() const; ///< "2^-20 to 2^3"; "-" if all are zero
};

/// A gradient.
struct TensorRecord {
    std::string name, layer;
    TensorKind kind = TensorKind::weight_gradient;
    Censoring censoring{}; ///< what its records hide
    GradientCounts counts; ///< over all steps
    /// By followed format and column: the share of non-zero elements that become zero at scale 1.
    std::array<std::vector<Share>, followed_formats.size()> zeroed;
};

/// How one format holds the tensors of one group of kinds; a tensor counts once for each recorded step.
struct KindFit {
    FormatSpec format;
    FormatFit fit{}; ///< the fit of all tensors together
    std::string advice{};
};

/// The tensors of one group of kinds in a run, over all recorded steps: how they are held by the formats in which such
/// tensors are used, E4M3 and FP16 in the forward pass, E5M2 for gradients.
struct KindRecord {
    const KindGroup* group = nullptr;
    MagnitudeHistogram magnitudes; ///< gradients without the loss scale
    std::vector<KindFit> fits;
};

/// Counts of casts under a scale to one format, over one column of steps.
struct ScaledCasts {
    std::uint64_t nonzero = 0, underflow = 0, saturated = 0;
    /// Extremes of log2(amax * scale / largest value of the format): how much of the range the tensors use.
    double least = std::numeric_limits<double>::infinity(), most = -least;

    void merge(const ScaledCasts& other);
};
struct ScaledTensor {
    std::string name, format;
    std::uint64_t nonzero = 0, underflow = 0, saturated = 0;
    double amax = 0; ///< largest magnitude over all steps
};

/// Where a run first left the reference, as the trainer saw it (result.json).
struct RecordedDeparture {
    std::string kind, tensor, op;      ///< kind: a name of departure_names
    std::optional<double> step, error; ///< error relative to the reference's tensor; none unless the kind is "error"
};

/// Gradients that are NaN or infinite as recorded, though no loss scale made them so and no step was skipped.
struct NonfiniteRecord {
    std::set<std::int64_t> steps;
    std::string first; ///< the tensor, of the first step; by name among equals
};

struct RecordedRun {
    std::filesystem::path path;
    std::string name;                             ///< name in findings
    std::string label;                            ///< the run's precision; for gradients in files their name
    nlohmann::ordered_json configuration, result; ///< run.json and result.json; null if missing
    RunFacts facts;                               ///< what run.json says
    std::vector<StepMetrics> steps;               ///< empty for gradients without a log
    Share lost_updates;                           ///< among weights with a gradient, over steps that keep all finite
    std::vector<std::int64_t> skipped;            ///< steps that did not update the weights
    StepColumns columns;
    std::vector<std::optional<std::int64_t>> recorded; ///< first step with known gradients, by column
    std::vector<TensorRecord> tensors;                 ///< in order of appearance
    MagnitudeHistogram magnitudes;                     ///< over all of these tensors and steps
    bool scale_stated = true;                          ///< false if a file of gradients states no loss scale
    std::optional<double> recorded_scale;              ///< loss scale that the caller gave for gradients in files
    NonfiniteRecord nonfinite;                         ///< without steps: there are none
    ScaleCurves scales;               ///< what loss scales do to them in usual_formats; compare() computes it
    std::vector<KindRecord> kinds;    ///< only if weights or activations were recorded; in the order of kind_groups
    std::vector<std::string> formats; ///< formats of casts under a scale, in order of appearance
    std::vector<std::vector<ScaledCasts>> scaled; ///< counts by index in `formats` and column
    std::vector<ScaledTensor> scaled_tensors;
    std::vector<RecordedDeparture> departures; ///< one of each kind; none where no reference ran beside it
    std::vector<SourceFile> files;
    std::vector<std::string> errors; ///< one line for each damaged file of gradients
    std::vector<std::string> warnings;
    std::vector<std::string> remarks; ///< remarks of the recorder about the training loop

    /// final_loss_of() the logged losses; std::nullopt without losses.
    [[nodiscard]] std::optional<double> final_loss() const;
    /// The first step with an infinite or NaN loss.
    [[nodiscard]] std::optional<std::int64_t> broken_at() const;
    /// Counts of all casts under a scale to formats[f].
    [[nodiscard]] ScaledCasts all_scaled(std::size_t f) const;
    /// Tensors that lose most in FP16 without a loss scale first.
    [[nodiscard]] std::vector<const TensorRecord*> most_underflow_first() const;
    /// Casts under a scale that saturate or lose elements, those that saturate most first.
    [[nodiscard]] std::vector<const ScaledTensor*> most_saturated_first() const;
    [[nodiscard]] Censoring censoring() const; ///< what the records of all gradients hide
};

/// The run folders at and below a path, in order. A path without any is returned itself, as gradients in files. A
/// folder that cannot be listed adds a line to `errors`. Throws FileError if the path does not exist.
std::vector<std::filesystem::path> find_runs(const std::filesystem::path& path, std::vector<std::string>& errors);

/// The one run folder at or below a path, or the path itself if there is none. Throws FileError, which names them, if
/// there are several, or if the path does not exist.
std::filesystem::path only_run(const std::filesystem::path& path);

/// Options for reading a run.
struct ReadRunOptions {
    double limit = RecommendationOptions().limit; ///< of underflow / nonzero in tensors that a format holds
    std::optional<double> recorded_scale{};       ///< loss scale of gradients in files, whatever they state
    int threads = 0;                              ///< 0: every core; results do not depend on it
};

/// Reads a run folder, or gradients in files. `name` is its name in findings. Progress is reported in bytes. Parts that
/// cannot be read become errors or warnings; so does a recorded_scale for a run folder, which states its scales itself.
/// Throws FileError or RecordingError if nothing can be read.
RecordedRun read_run(const std::filesystem::path& path, const std::string& name, const ReadRunOptions& options,
                     const Watch& watch = {});

} // namespace amp

// What a comparison needs of one recorded run, or of gradients in files: read once, in memory that does not grow with
// the number of recorded tensors times steps.
#pragma once

#include <ampscope/sim/analysis/histogram_log.h>
#include <ampscope/sim/base/progress.h>
#include <ampscope/sim/findings/adam_effects.h>
#include <ampscope/sim/io/provenance.h>
#include <ampscope/sim/io/step_log.h>

#include <array>
#include <limits>

namespace amp {

/// Formats whose underflow, unscaled, is followed over the steps.
inline constexpr std::array<std::string_view, 2> followed_formats = {"fp16", "e5m2"};

/// A part of a number of elements.
struct Share {
    std::uint64_t part = 0, whole = 0;

    [[nodiscard]] double rate() const {
        return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
    }
    Share& operator+=(const Share& other) {
        part += other.part;
        whole += other.whole;
        return *this;
    }
};

/// Steps as at most 64 columns of a picture.
struct StepColumns {
    std::int64_t first = 0, last = 0;

    [[nodiscard]] std::size_t count() const;
    [[nodiscard]] std::size_t of(std::int64_t step) const;      ///< steps outside count as the nearest
    [[nodiscard]] std::int64_t begin(std::size_t column) const; ///< its first step
};

/// Gradients, the loss scale divided out: what a report needs of single tensors, in a tenth of the memory of an exact
/// histogram.
struct GradientCounts {
    BinadeCounts binades{}; ///< floor(log2|x|)
    std::uint64_t nonzero = 0, nan = 0;
    std::array<std::uint64_t, usual_formats.size()> underflow{}; ///< by format, at scale 1

    void add(const MagnitudeHistogram& magnitudes);
    void merge(const GradientCounts& other);
    /// Of its non-zero elements those that become zero in usual_formats[f].
    [[nodiscard]] Share zeroed(std::size_t f) const { return {underflow[f], nonzero}; }
    [[nodiscard]] std::string range() const; ///< "2^-20 to 2^3"; "-" where all are zero
};

struct TensorRecord {
    std::string name, layer;
    GradientKind kind = GradientKind::weight;
    bool flushed = false;  ///< recorded in a format of less range than FP32: small ones are lost already
    GradientCounts counts; ///< of all steps
    /// By followed format and column: what becomes zero at scale 1, of the non-zero elements.
    std::array<std::vector<Share>, followed_formats.size()> zeroed;
};

/// Casts under a scale to one format, in one column of steps.
struct ScaledCasts {
    std::uint64_t nonzero = 0, underflow = 0, saturated = 0;
    /// log2 of amax * scale / the largest value: how much of the range the tensors use.
    double least = std::numeric_limits<double>::infinity(), most = -least;
};
struct ScaledTensor {
    std::string name, format;
    std::uint64_t nonzero = 0, underflow = 0, saturated = 0;
    double amax = 0; ///< the largest of all steps
};

struct RecordedRun {
    std::filesystem::path path;
    std::string name;                             ///< how findings call it
    std::string label;                            ///< its precision; of no run folder the name
    nlohmann::ordered_json configuration, result; ///< run.json, result.json; null where there is none
    std::vector<StepMetrics> steps;               ///< empty for gradients without a log
    Share lost_updates;                           ///< of weights with a gradient, over all steps
    std::vector<std::int64_t> skipped;            ///< steps that left the weights alone
    StepColumns columns;
    std::vector<std::optional<std::int64_t>> recorded; ///< by column: the first step whose gradients are known
    std::vector<TensorRecord> tensors;                 ///< in the order of their appearance
    MagnitudeHistogram magnitudes;                     ///< of them all
    std::vector<std::string> formats;                  ///< that casts under a scale had, in the order of appearance
    std::vector<std::vector<ScaledCasts>> scaled;      ///< by such format and column
    std::vector<ScaledTensor> scaled_tensors;
    std::vector<SourceFile> files;
    std::vector<std::string> errors; ///< a line for each damaged file of gradients
    std::vector<std::string> warnings;
    std::vector<std::string> remarks; ///< of the recorder, about the loop that it watched

    /// Mean of the last tenth of the losses, ten at least: NaN if one of them is; nothing where none is logged.
    [[nodiscard]] std::optional<double> final_loss() const;
    /// The first step whose loss is not finite.
    [[nodiscard]] std::optional<std::int64_t> broken_at() const;
    [[nodiscard]] bool flushed() const; ///< some gradients were recorded in a format of less range than FP32
};

/// What is at a JSON pointer, as text or number; empty where there is nothing of the kind.
std::string text_at(const nlohmann::ordered_json& json, const std::string& pointer);
std::optional<double> number_at(const nlohmann::ordered_json& json, const std::string& pointer);

/// Run folders at and below a path, in order; one without any stands for itself: gradients in files. A folder that
/// cannot be listed adds a line to `errors`. Throws FileError for a path that does not exist.
std::vector<std::filesystem::path> find_runs(const std::filesystem::path& path, std::vector<std::string>& errors);

/// Reads a run folder, or gradients in files; `name` is how findings call it. The watch is told of bytes. Parts that
/// cannot be read become errors or warnings. Throws FileError or RecordingError for an input of which nothing can be
/// read.
RecordedRun read_run(const std::filesystem::path& path, const std::string& name, int threads, const Watch& watch = {});

} // namespace amp

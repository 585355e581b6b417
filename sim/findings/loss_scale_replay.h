// A recorded run under another loss scaler: which steps would have been skipped, and what would have underflowed.
//
// Gradients are those of the recorded run: other skips would have led to other weights, which no replay can know. How
// each step is known is part of every result.
#pragma once

#include <ampscope/sim/analysis/histogram.h>
#include <ampscope/sim/base/progress.h>
#include <ampscope/sim/optim/loss_scaler.h>

#include <limits>
#include <span>
#include <string>
#include <vector>

namespace amp {

/// What is known of the gradients of one step, without the loss scale that they were recorded under.
struct GradientStep {
    std::int64_t step = 0;
    double amax = 0;        ///< the largest finite magnitude recorded
    double clean_scale = 0; ///< no gradient overflowed under this scale, by the record
    double overflow_scale = std::numeric_limits<double>::infinity(); ///< one did under this scale, by the record
    std::string largest{};                                           ///< whose magnitude amax is, or who overflowed
    MagnitudeHistogram magnitudes{};                                 ///< empty where none were recorded
    bool flushed = false; ///< recorded in a format that had lost small ones: what underflows is more than is counted
    bool hidden = false;  ///< its record cannot be read: nothing is known of it, nor of the missing steps behind it
};

enum class Known : std::uint8_t {
    exact,  ///< follows from the record
    bound,  ///< nothing recorded overflows; of what was not recorded something might
    unknown ///< the record hides it: the step overflowed then, under a larger scale, or is not in the record
};
std::string_view name_of(Known known);

struct StepOverflow {
    bool overflows = false;
    Known known = Known::exact;
};

/// Whether a gradient of the step overflows in the format under a scale. Where it is not known, as of a hidden step, it
/// does not.
StepOverflow overflows_at(const GradientStep& step, double scale, const FormatSpec& format);

enum class AlarmKind : std::uint8_t {
    zero_scale,
    below_one,
    stuck_at_minimum,
    never_grows,
    shorter_than_interval,
    aborts,
    poisons
};
std::string_view name_of(AlarmKind kind);

struct Alarm {
    AlarmKind kind;
    std::int64_t step; ///< from which on, or where
};

/// The scale from a step on, until the next change.
struct ScaleChange {
    std::int64_t step;
    double scale;
};

struct SkippedStep {
    std::int64_t step;
    double scale;
    std::string tensor; ///< that overflows, where the record names it
    Known known;
};

struct Replay {
    std::int64_t steps = 0;            ///< replayed, those in gaps of the record included
    std::int64_t skips = 0;            ///< steps that are skipped
    std::vector<ScaleChange> scales{}; ///< what the loss was multiplied by: the first changes, as many as are asked for
    std::vector<SkippedStep> skipped{};       ///< likewise the first of them
    std::optional<std::int64_t> first_good{}; ///< the first step that is taken
    double final_scale = 1;
    std::int64_t known[3] = {0, 0, 0};        ///< steps by Known
    std::map<double, std::int64_t> time{};    ///< steps at each scale
    std::uint64_t underflow = 0, nonzero = 0; ///< over the steps taken whose magnitudes were recorded
    std::int64_t counted = 0;                 ///< such steps
    Known underflow_known = Known::exact;     ///< bound: at least so much
    std::vector<Alarm> alarms{};

    [[nodiscard]] double skip_rate() const { return static_cast<double>(skips) / static_cast<double>(steps); }
    [[nodiscard]] double underflow_rate() const {
        return nonzero == 0 ? 0 : static_cast<double>(underflow) / static_cast<double>(nonzero);
    }
};

inline constexpr std::size_t most_listed_steps = 100'000; ///< of a replay: 10 MB

/// Replays a scaler over steps in ascending order; a step that is missing has the gradients of the one before it, and
/// is not known. `format` is that of gradients in backward. Throws std::invalid_argument for options outside their
/// ranges, no steps, or more than longest_run. `listed`: how many changes and skipped steps are listed; with
/// none of them a gap takes no time.
Replay replay_scaler(const LossScalerOptions& options, std::span<const GradientStep> steps, const FormatSpec& format,
                     std::size_t listed = most_listed_steps);

struct ScalerReplay {
    std::string name; ///< as the command line takes it: "torch,init=2^10,interval=200,backoff=0.5"
    LossScalerOptions options;
    Replay replay; ///< nothing listed
    /// The share of steps skipped and that of non-zero gradients that underflow, added up: what training loses.
    [[nodiscard]] double lost() const { return replay.skip_rate() + replay.underflow_rate(); }
};

/// Constant scales and settings of torch's machine, by what they lose, then by their final scale, largest first;
/// of those that come out alike the first. The watch is told of settings.
std::vector<ScalerReplay> sweep_scalers(std::span<const GradientStep> steps, const FormatSpec& format,
                                        const Watch& watch = {});

/// A row's name with changes: "torch,interval=100,min=2^7". Keys: init, growth, backoff (factors), interval,
/// hysteresis, min, max. Throws std::invalid_argument.
LossScalerOptions scaler_options(std::string_view text);

} // namespace amp

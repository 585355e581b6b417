// Replays a recorded run with another loss scaler: which steps it would have skipped, and what would have underflowed.
//
// The gradients are those of the recorded run: skipping other steps would have led to other weights, which no replay
// can know. Every result says how well it is known.
#pragma once

#include <ampscope/sim/analysis/histogram.h>
#include <ampscope/sim/base/progress.h>
#include <ampscope/sim/optim/loss_scaler.h>

#include <limits>
#include <span>
#include <string>
#include <vector>

namespace amp {

/// What is known about the gradients of one step. Magnitudes do not contain the loss scale.
struct GradientStep {
    std::int64_t step = 0;
    double amax = 0;        ///< largest finite magnitude recorded
    double clean_scale = 0; ///< loss scale under which, by the record, no gradient overflowed; 0: none
    /// Loss scale under which, by the record, a gradient overflowed; infinite: none. 0: any, as the loss was NaN.
    double overflow_scale = std::numeric_limits<double>::infinity();
    std::string largest{};           ///< name of the tensor that has amax, or overflowed
    MagnitudeHistogram magnitudes{}; ///< empty if no histogram was recorded
    Censoring censoring{};           ///< what the record hides: more underflows than is counted
    bool hidden = false; ///< its record cannot be read: nothing is known about it and the missing steps after it
};

struct StepOverflow {
    bool overflows = false;
    /// bound: no recorded gradient overflows, but one that was not recorded might; unknown: the step overflowed under a
    /// larger scale, or is not in the record.
    Known known = Known::exact;
};

/// Whether a gradient of the step, times the scale, overflows in the format. If that is not known, as for a hidden
/// step, the answer is no.
StepOverflow overflows_at(const GradientStep& step, double scale, const FormatSpec& format);

/// What is wrong with a replayed scale; alarm_text() says it in a sentence.
enum class AlarmKind : std::uint8_t {
    zero_scale,            ///< the scale becomes 0: every later gradient is 0 / 0
    below_one,             ///< the scale falls below 1
    stuck_at_minimum,      ///< a step overflows although the scale is at its minimum
    never_grows,           ///< the run is longer than the growth interval, but no interval passes without overflow
    shorter_than_interval, ///< the run is shorter than the growth interval
    aborts,                ///< the scaler ends the run: an overflow at its minimum
    poisons                ///< a step that overflows is taken, since nothing checks it
};
std::string_view name_of(AlarmKind kind);

struct Alarm {
    AlarmKind kind;
    std::int64_t step; ///< the step where it happens, or from which on it holds
};

/// The loss scale from a step on, until the next change.
struct ScaleChange {
    std::int64_t step;
    double scale;
};

struct SkippedStep {
    std::int64_t step;
    double scale;
    std::string tensor; ///< name of the tensor that overflows, if the record has it
    Known known;
};

struct Replay {
    std::int64_t steps = 0;                   ///< number of steps replayed, including those missing in the record
    std::int64_t skips = 0;                   ///< number of steps skipped
    std::vector<ScaleChange> scales{};        ///< loss scales: the first changes, at most as many as were asked for
    std::vector<SkippedStep> skipped{};       ///< the first skipped steps, likewise
    std::optional<std::int64_t> first_good{}; ///< the first step that is not skipped
    double final_scale = 1;
    std::int64_t known[3] = {0, 0, 0};        ///< number of steps by Known
    std::map<double, std::int64_t> time{};    ///< number of steps at each scale
    std::uint64_t underflow = 0, nonzero = 0; ///< elements over the steps taken whose magnitudes were recorded
    std::int64_t counted = 0;                 ///< number of such steps
    Known underflow_known = Known::exact;     ///< bound: at least so much underflows
    std::vector<Alarm> alarms{};

    [[nodiscard]] double skip_rate() const { return static_cast<double>(skips) / static_cast<double>(steps); }
    [[nodiscard]] double underflow_rate() const {
        return nonzero == 0 ? 0 : static_cast<double>(underflow) / static_cast<double>(nonzero);
    }
};

inline constexpr std::size_t most_listed_steps = 100'000; ///< listed steps of a replay: they take 10 MB

/// Replays a scaler over steps in ascending order. A missing step is given the gradients of the one before it and
/// counts as unknown. `format` is the format of gradients in backward. At most `listed` changes of the scale, and as
/// many skipped steps, are listed; with 0, gaps take no time. Throws std::invalid_argument if an option is outside its
/// range, without steps, and for more than longest_run of them.
Replay replay_scaler(const LossScalerOptions& options, std::span<const GradientStep> steps, const FormatSpec& format,
                     std::size_t listed = most_listed_steps);

struct ScalerReplay {
    std::string name; ///< text as on the command line: "torch,init=2^10,interval=200,backoff=0.5"
    LossScalerOptions options;
    Replay replay; ///< without lists of steps
    /// What training loses: the share of steps skipped plus the share of non-zero gradients that underflow.
    [[nodiscard]] double lost() const { return replay.skip_rate() + replay.underflow_rate(); }
};

/// Replays constant scales and settings of torch's scaler. Sorted by what they lose, then by their final scale, largest
/// first; of settings with equal results only the first is listed. Progress is reported in settings.
std::vector<ScalerReplay> sweep_scalers(std::span<const GradientStep> steps, const FormatSpec& format,
                                        const Watch& watch = {});

/// Options for a table row with changes: "torch,interval=100,min=2^7". Throws std::invalid_argument.
LossScalerOptions scaler_options(std::string_view text);
/// The names of what can be changed so, separated by commas: init, growth ...
std::string scaler_option_names();

} // namespace amp

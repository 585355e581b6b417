// The updates of a recorded run: which steps were skipped, and the settings of its optimizer, as run.json has them and
// as metrics.jsonl gives them for a step and its parameter groups.
#pragma once

#include <ampscope/sim/findings/adam.h>
#include <ampscope/sim/findings/detail/adam_source.h>
#include <ampscope/sim/io/recording.h>

#include <nlohmann/json_fwd.hpp>

#include <map>
#include <set>

namespace amp::detail {

/// The settings with what the options state of them, which counts more than what was recorded.
OptimizerOptions overridden(OptimizerOptions recorded, const AdamOptions& options);

/// The gradients of each parameter, by their names.
using GradientSeries = std::map<std::string, std::vector<const RecordedTensor*>>;

/// The steps of which there are any.
std::set<std::int64_t> steps_of(const GradientSeries& series);

class UpdateLog {
  public:
    /// Reads the files of a run, if it is one; of settings it keeps those of these steps. What the options state counts
    /// more than what was recorded. Throws FileError for files that cannot be read or hold settings outside their
    /// ranges, std::invalid_argument for an optimizer that has no eps.
    UpdateLog(const std::filesystem::path& run, const AdamOptions& options, const std::set<std::int64_t>& steps);

    /// The settings of the update of a parameter, which is named by its gradient, in a step: those of its group. What
    /// was not recorded of the step is as run.json says, else as the optimizer's default is.
    [[nodiscard]] const OptimizerOptions& settings(const std::string& gradient,
                                                   const std::optional<std::int64_t>& step) const;
    /// The number of updates in steps [begin, end): of those that the loss scaler did not skip.
    [[nodiscard]] std::int64_t updates(std::int64_t begin, std::int64_t end) const;
    [[nodiscard]] bool was_skipped(std::int64_t step) const;
    /// Leaves out the gradients of skipped steps, of which the optimizer saw nothing, but those of AdamOptions::step;
    /// all stay if all steps were skipped. Without metrics.jsonl a step was skipped if a gradient of it is under a loss
    /// scale and not finite.
    void leave_out_skipped(GradientSeries& series, OpenFiles& open);
    /// Whether weight decay that Adam adds to gradients is left out of the settings.
    [[nodiscard]] bool leaves_out_decay() const { return leaves_out_decay_; }

  private:
    /// The settings of each group in a step.
    [[nodiscard]] std::vector<OptimizerOptions> settings_of(const nlohmann::ordered_json& line);
    /// With what counts more, and without what is left out.
    [[nodiscard]] OptimizerOptions final(OptimizerOptions recorded);

    const AdamOptions& options_;
    OptimizerOptions recorded_;                 ///< as run.json has them
    OptimizerOptions usual_;                    ///< the same, final
    std::map<std::string, std::size_t> groups_; ///< the group of parameters that are not in the first
    std::map<std::int64_t, std::vector<OptimizerOptions>> steps_;
    std::vector<std::int64_t> skipped_; ///< ascending
    bool has_steps_ = false;            ///< whether metrics.jsonl tells which were
    bool leaves_out_decay_ = false;
};

} // namespace amp::detail

// Several trainings of one network side by side, on the same data in the same order: each in its own precision,
// compared with the FP32 one step by step.
#pragma once

#include <ampscope/sim/train/departure.h>
#include <ampscope/sim/train/run_folder.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

namespace amp {

struct ExperimentOptions {
    std::int64_t steps = 300;
    int threads = 0;                    ///< of all runs together; results do not depend on it
    std::filesystem::path record{};     ///< a folder for each run is made in it; empty: nothing is written
    std::int64_t record_every = 50;     ///< steps between recordings of gradients
    bool record_state = false;          ///< weights and optimizer too
    std::int64_t checkpoint_every = 0;  ///< steps; 0: none
    bool resume = false;                ///< from the last checkpoint that every run has
    std::int64_t statistics_every = 10; ///< steps between counts of what rounding does and comparisons with FP32
    double departure_bound = 0.1;       ///< relative error beyond which a tensor has left the reference
    std::string reference{}; ///< the precision of the run that others are compared with; empty: FP32's, if there is one
};

/// One of the runs, and what has become of it.
struct Run {
    std::unique_ptr<Trainer> trainer;
    std::optional<RunFolder> folder;
    std::optional<DepartureWatch> departures; ///< none for the reference, or without one
    StepResult last{};
    std::vector<double> losses; ///< of every step
    std::int64_t skipped = 0;
    RoundingCounts gradients{}, activations{}, weights{}; ///< of the steps whose roundings were counted
    UpdateCounts updates{};                               ///< of all steps
    /// |g - g0| / |g0| of all parameters' gradients in the first step, where all weights are still the same.
    std::optional<double> gradient_error{};
    std::string stopped; ///< why, if it ended before its time

    [[nodiscard]] const Precision& precision() const { return trainer->options().precision; }
    /// Mean of the last tenth of the losses, ten at least.
    [[nodiscard]] double final_loss() const;
};

class Experiment {
  public:
    /// Runs with different names. `origin`, who runs them, begins each run.json. Throws FileError,
    /// std::invalid_argument; then no folder was changed.
    Experiment(const std::vector<TrainOptions>& runs, const Dataset& data, ExperimentOptions options,
               const nlohmann::ordered_json& origin);

    [[nodiscard]] std::int64_t steps() const { return step_; }
    [[nodiscard]] bool finished() const { return step_ >= options_.steps; }
    void step();
    [[nodiscard]] std::vector<Run>& runs() { return runs_; }
    [[nodiscard]] const std::vector<Run>& runs() const { return runs_; }
    /// What the user should be told of how it began: lines that name the file.
    [[nodiscard]] const std::vector<std::string>& warnings() const { return warnings_; }
    /// The run that the others are compared with, if there is one.
    [[nodiscard]] const Run* reference() const { return reference_; }
    /// |w - w0| / |w0| over all parameters, w0 the reference's; none without one.
    [[nodiscard]] std::optional<double> distance(const Run& run) const;

  private:
    void open_folders(const nlohmann::ordered_json& origin, const Dataset& data);
    void resume();
    [[nodiscard]] std::vector<std::int64_t> common_checkpoints() const;
    void compute(Run& run);
    void apply(Run& run);
    void checkpoint();

    ExperimentOptions options_;
    std::vector<Run> runs_;
    std::vector<std::string> warnings_;
    Run* reference_ = nullptr;
    std::int64_t step_ = 0, last_checkpoint_ = 0;
};

} // namespace amp

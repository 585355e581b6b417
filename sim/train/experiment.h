// Trains one network several times side by side, on the same data in the same order, each time in another precision,
// and compares each run with the FP32 run step by step.
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
    int threads = 0;                    ///< threads of all runs together; results do not depend on it
    std::filesystem::path record{};     ///< each run gets a folder in it; empty: nothing is written
    std::int64_t record_every = 50;     ///< steps between recordings of gradients
    bool record_activations = false;    ///< record the outputs of layers and the weights, too
    bool record_replicas = false;       ///< record the gradients of each replica, too
    bool record_state = false;          ///< record weights and optimizer state, too
    std::int64_t checkpoint_every = 0;  ///< steps between checkpoints; 0: none
    bool resume = false;                ///< continue from the last checkpoint that all runs have
    std::int64_t statistics_every = 10; ///< steps between counts of rounding effects and comparisons with FP32
    double departure_bound = 0.1;       ///< relative error from which a tensor has departed from the reference
    std::string reference{};            ///< precision of the run that others are compared with; empty: FP32, if any
    bool profile = false;               ///< measure the time of each op
    RankGroup* group = nullptr;         ///< replicas run on these ranks, of which only the first may record
    bool group_records = false;         ///< the first rank records; all ranks of a group must say the same

    /// What so many runs read between steps: departures are looked for in all tensors.
    [[nodiscard]] Keeps keeps(std::size_t runs) const {
        return runs > 1 ? Keeps::all : record_activations ? Keeps::activations : Keeps::results;
    }
};

/// One of the runs and its results so far.
struct Run {
    std::unique_ptr<Trainer> trainer;
    std::optional<RunFolder> folder;
    std::optional<DepartureWatch> departures; ///< none for the reference, or if there is no reference
    StepResult last{};
    std::vector<double> losses; ///< one for each step
    std::int64_t skipped = 0;
    RoundingCounts gradients{}, activations{}, weights{}; ///< sums over the steps whose roundings were counted
    UpdateCounts updates{};                               ///< sums over all steps
    /// |g - g0| / |g0| over all parameters' gradients in the first step, where all runs still have the same weights.
    std::optional<double> gradient_error{};
    std::string stopped;                    ///< why the run ended early, if it did
    std::unique_ptr<TimeProfile> profile{}; ///< the time of its ops, if that is measured
    std::int64_t profiled_steps = 0;        ///< without those before a resumption

    [[nodiscard]] const Precision& precision() const { return trainer->options().precision; }
    /// See final_loss_of() of io/step_log.h.
    [[nodiscard]] double final_loss() const;
};

class Experiment {
  public:
    /// The data must outlive the experiment. The runs must have different names. `origin`, which says what program runs
    /// them, begins each run.json. Throws FileError and std::invalid_argument; then no folder was changed.
    Experiment(const std::vector<TrainOptions>& runs, const Dataset& data, ExperimentOptions options,
               const nlohmann::ordered_json& origin);

    [[nodiscard]] std::int64_t steps() const { return step_; }
    [[nodiscard]] bool finished() const { return step_ >= options_.steps; }
    void step();
    [[nodiscard]] std::vector<Run>& runs() { return runs_; }
    [[nodiscard]] const std::vector<Run>& runs() const { return runs_; }
    /// Warnings from the start, for the user: lines that name the file.
    [[nodiscard]] const std::vector<std::string>& warnings() const { return warnings_; }
    /// The run that the others are compared with; null if there is none.
    [[nodiscard]] const Run* reference() const { return reference_; }
    /// |w - w0| / |w0| over all parameters, where w0 are the reference's; std::nullopt without a reference.
    [[nodiscard]] std::optional<double> distance(const Run& run) const;

    /// Brings all ranks of the group to the state of the first, which may have resumed. Each calls it before its first
    /// step. Throws std::runtime_error if they were started with other options.
    void begin_together();

  private:
    void open_folders(const nlohmann::ordered_json& origin, const Dataset& data);
    void resume();
    [[nodiscard]] bool records_tensors() const;
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

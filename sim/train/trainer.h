// Trains a network: runs the programs of a step in emulated precision.
//
//     Trainer trainer(options, digits_data());
//     while (trainer.steps() < 300) log(trainer.step());
//     trainer.evaluate().accuracy
#pragma once

#include <ampscope/sim/program/training_program.h>
#include <ampscope/sim/train/data/dataset.h>
#include <ampscope/sim/train/evaluate.h>
#include <ampscope/sim/train/rank_group.h>

namespace amp {

struct StepResult {
    std::int64_t step = 0;
    double loss = 0;  ///< mean over micro-batches and replicas; may be infinite or NaN
    double scale = 1; ///< loss scale of this step
    bool found_inf = false;
    ScalerVerdict verdict = ScalerVerdict::step;
    double gradient_norm = 0; ///< norm over all parameters, after unscaling and before clipping
    double learning_rate = 0;
    double amax_weight = 0,
           amax_activation = 0; ///< largest finite magnitudes of unscaled gradients: weights', watched activations'
    UpdateCounts updates{};
};

/// Which tensors besides state can be read between two steps of a trainer, until it evaluates. Others share memory.
enum class Keeps : std::uint8_t {
    results,     ///< those of results_of() but for activations
    activations, ///< and activations that are watched
    all          ///< all tensors
};

class Trainer {
  public:
    /// Trains on the processor. `threads`: 0 for every core; results do not depend on it. The dataset must outlive the
    /// trainer.
    Trainer(const TrainOptions& options, const Dataset& data, int threads = 0, Keeps keeps = Keeps::results);
    Trainer(const TrainOptions& options, const Dataset& data, const MakeBackend& make, Keeps keeps = Keeps::results);
    /// The same with one replica in each of several processes; this one runs one of them. The group must outlive the
    /// trainer. Steps compute the numbers of a trainer with all replicas.
    Trainer(const TrainOptions& options, const Dataset& data, int threads, RankGroup& group,
            Keeps keeps = Keeps::results);

    /// One step. Throws std::runtime_error if the loss scaler gives up.
    StepResult step() { return apply(compute()); }
    /// A step in two halves; between them gradients are still multiplied by the loss scale, and evaluate(), which would
    /// use their memory, throws std::logic_error.
    StepResult compute();
    StepResult apply(StepResult result);

    /// The present network in the same precision on all validation data (in whole batches if targets are real numbers).
    Evaluation evaluate();

    [[nodiscard]] std::int64_t steps() const { return step_; }
    [[nodiscard]] const TrainOptions& options() const { return options_; }
    [[nodiscard]] const Dataset& data() const { return data_; }
    [[nodiscard]] const TrainingProgram& training() const { return training_; }
    [[nodiscard]] Backend& backend() { return *backend_; }
    [[nodiscard]] const Backend& backend() const { return *backend_; }

    /// The state, besides tensors, from which a run continues.
    struct State {
        std::int64_t step = 0, updates = 0;
        LossScalerState scaler{};
    };
    [[nodiscard]] State state() const { return {step_, updates_, scaler_}; }
    /// The tensors of the state: parameters and optimizer state.
    [[nodiscard]] std::vector<TensorId> state_tensors() const;
    void restore(const State& state);

  private:
    void run_replica(std::vector<double>& losses);

    TrainOptions options_;
    const Dataset& data_;
    TrainingProgram training_;
    std::unique_ptr<Backend> backend_;
    Shuffle shuffle_;
    LossScalerState scaler_;
    std::int64_t step_ = 0, updates_ = 0;
    bool in_step_ = false;       ///< between compute() and apply()
    RankGroup* group_ = nullptr; ///< none: all replicas run here
};

} // namespace amp

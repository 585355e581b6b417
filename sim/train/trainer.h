// A network in training: the programs of a step, run in emulated precision.
//
//     Trainer trainer(options, digits_data());
//     while (trainer.steps() < 300) log(trainer.step());
//     trainer.evaluate().accuracy
#pragma once

#include <ampscope/sim/program/training_program.h>
#include <ampscope/sim/train/data/dataset.h>
#include <ampscope/sim/train/evaluate.h>

namespace amp {

struct StepResult {
    std::int64_t step = 0;
    double loss = 0;  ///< mean over micro-batches and replicas; may be infinite or NaN
    double scale = 1; ///< of the loss in this step
    bool found_inf = false;
    ScalerVerdict verdict = ScalerVerdict::step;
    double gradient_norm = 0; ///< after unscaling, before clipping; of all parameters
    double learning_rate = 0;
    double amax_weight = 0,
           amax_activation = 0; ///< largest finite magnitude of unscaled gradients; watched activations
    UpdateCounts updates{};
};

class Trainer {
  public:
    /// On the processor. threads: 0 for every core; results do not depend on it. The dataset must outlive this.
    Trainer(const TrainOptions& options, const Dataset& data, int threads = 0);
    Trainer(const TrainOptions& options, const Dataset& data, const MakeBackend& make);

    /// One step. Throws std::runtime_error where the loss scaler gives up.
    StepResult step() { return apply(compute()); }
    /// The same in two halves, between which gradients still contain the loss scale.
    StepResult compute();
    StepResult apply(StepResult result);

    /// The network as it is, in the same precision, on all validation data (of measurements, on whole batches of it).
    Evaluation evaluate();

    [[nodiscard]] std::int64_t steps() const { return step_; }
    [[nodiscard]] const TrainOptions& options() const { return options_; }
    [[nodiscard]] const TrainingProgram& training() const { return training_; }
    [[nodiscard]] Backend& backend() { return *backend_; }
    [[nodiscard]] const Backend& backend() const { return *backend_; }

    /// All that a run goes on from.
    struct State {
        std::int64_t step = 0, updates = 0;
        LossScalerState scaler{};
    };
    [[nodiscard]] State state() const { return {step_, updates_, scaler_}; }
    /// The tensors that belong to it: parameters and the optimizer's.
    [[nodiscard]] std::vector<TensorId> state_tensors() const;
    void restore(const State& state);

  private:
    TrainOptions options_;
    const Dataset& data_;
    TrainingProgram training_;
    std::unique_ptr<Backend> backend_;
    Shuffle shuffle_;
    LossScalerState scaler_;
    std::int64_t step_ = 0, updates_ = 0;
};

} // namespace amp

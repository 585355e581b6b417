// A network in training: the programs of a step, run in emulated precision.
//
//     Trainer trainer(options, digits_data());
//     while (trainer.steps() < 300) log(trainer.step());
//     trainer.evaluate().accuracy
#pragma once

#include <ampscope/sim/evaluate.h>
#include <ampscope/sim/loss_scaler.h>

namespace amp {

struct AllReduceOptions {
    AllReduceOrder order = AllReduceOrder::ring;
    AllReduceDivision division = AllReduceDivision::before;
    FormatSpec transport = format("fp32");
    bool scaled = false; ///< see AllReduce; of weights that layers scale, or of all where no recipe scales
};

struct TrainOptions {
    ModelOptions model{};
    Precision precision{};
    OptimizerOptions optimizer{};
    std::string loss_scaler{};        ///< a row of loss_scalers, for messages
    LossScalerOptions scaling{};      ///< LossScaling::off for none
    double loss_weight = 1;           ///< of the loss that is differentiated; reports show the loss without it
    double clip = 0;                  ///< largest norm of the gradients; 0: no clipping
    bool clip_before_unscale = false; ///< the wrong order
    std::int64_t batch = 32;          ///< examples in a micro-batch of a replica
    int micro_batches = 1, replicas = 1;
    AllReduceOptions all_reduce{};
    std::int64_t warmup = 0; ///< steps over which the learning rate rises linearly
    std::uint64_t seed = 0;
};

/// The tensors of one parameter; m, v and compensation where the optimizer has them.
struct ParameterTensors {
    TensorId weight;
    std::vector<TensorId> contributions; ///< a gradient for each replica
    TensorId gradient;                   ///< after all-reduce: what is unscaled, clipped and applied
    TensorId m, v, compensation;
};

/// A network's program with everything that a step takes, for one precision.
struct TrainingProgram {
    Program program;
    Network network;
    std::vector<ParameterTensors> parameters;
    std::vector<Parameter> initial;                                  ///< how each begins
    std::vector<std::pair<std::string, TensorId>> watched_gradients; ///< "h.0.attn.out.grad"
    std::vector<DelayedScale> delayed_scales;                        ///< of a recipe with delayed scaling
    TensorId norm;                                                   ///< of the gradients, where they are clipped
};

/// Throws std::invalid_argument for options that contradict each other.
TrainingProgram build_training_program(const TrainOptions& options, const Dataset& data);

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

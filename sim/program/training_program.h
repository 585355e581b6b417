// The options of a training, and the program of a step that follows from them.
#pragma once

#include <ampscope/sim/program/model.h>

namespace amp {

struct AllReduceOptions {
    op::AllReduceOrder order = op::AllReduceOrder::ring;
    op::AllReduceDivision division = op::AllReduceDivision::before;
    FormatSpec transport = format("fp32");
    bool scaled = false; ///< AllReduce::scaled, for the weights that a recipe scales; without a recipe, for all
};

/// Formats, the rounding of new weights and the loss scaler all follow from a precision's text, which precision()
/// reads; nothing here repeats them.
struct TrainOptions {
    ModelOptions model{};
    Precision precision{};
    OptimizerOptions optimizer{};
    double loss_weight = 1;           ///< factor of the loss that is differentiated; reports show the loss without it
    double clip = 0;                  ///< largest norm of all gradients together; 0: no clipping
    bool clip_before_unscale = false; ///< clip scaled gradients, which is wrong: shows what that does
    std::int64_t batch = 32;          ///< examples in a micro-batch of one replica
    int micro_batches = 1, replicas = 1;
    AllReduceOptions all_reduce{};
    std::int64_t warmup = 0; ///< number of steps in which the learning rate rises linearly
    std::uint64_t seed = 0;
};

/// The tensors of one parameter; m, v and compensation only if the optimizer has them.
struct ParameterTensors {
    TensorId weight;
    std::vector<TensorId> contributions; ///< the gradient of each replica
    TensorId gradient;                   ///< the gradient after all-reduce, which is unscaled, clipped and applied
    TensorId m, v, compensation;
};

/// The program of a network for one precision, with all that a step consists of.
struct TrainingProgram {
    Program program;
    Network network;
    std::vector<ParameterTensors> parameters;
    std::vector<Parameter> initial; ///< how each parameter is initialised
    /// Name and tensor of the layers' outputs that a run records, such as "h.0.attn.out", and of their gradients, such
    /// as "h.0.attn.out.grad".
    std::vector<std::pair<std::string, TensorId>> watched_activations, watched_gradients;
    std::vector<DelayedScale> delayed_scales; ///< filled by recipes with delayed scaling
    TensorId norm;                            ///< norm of all gradients, if they are clipped
};

/// Throws std::invalid_argument if options contradict each other.
TrainingProgram build_training_program(const TrainOptions& options, const Dataset& data);

} // namespace amp

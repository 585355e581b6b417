// What a training takes, and the program of a step that follows from it.
#pragma once

#include <ampscope/sim/program/model.h>

namespace amp {

struct AllReduceOptions {
    op::AllReduceOrder order = op::AllReduceOrder::ring;
    op::AllReduceDivision division = op::AllReduceDivision::before;
    FormatSpec transport = format("fp32");
    bool scaled = false; ///< see AllReduce; of weights that layers scale, or of all where no recipe scales
};

/// A precision's text decides formats, how new weights are rounded and which loss scaler there is: precision() reads
/// it, and nothing here repeats any of that.
struct TrainOptions {
    ModelOptions model{};
    Precision precision{};
    OptimizerOptions optimizer{};
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

} // namespace amp

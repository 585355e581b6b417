// The options of a training, and the program of a step that follows from them.
#pragma once

#include <ampscope/sim/program/model.h>

#include <array>
#include <optional>
#include <span>

namespace amp {

/// What of a training the replicas divide among them: a row of shardings.
enum class Sharding : std::uint8_t { none, zero1, zero2, fsdp };

struct ShardingRow {
    std::string_view name;
    /// Which of the optimizer's state, the gradients and the weights are divided: a replica keeps its own chunks of
    /// them and no others.
    bool state, gradients, weights;
    std::string_view meaning, source;
};
inline constexpr std::array shardings = {
    ShardingRow{"none", false, false, false, "every replica keeps and updates everything",
                "PyTorch's DDP: torch/nn/parallel/distributed.py"},
    ShardingRow{"zero1", true, false, false,
                "a replica keeps the optimizer's state of a chunk of each weight and updates that chunk; once a step "
                "the new weights are gathered",
                "ZeRO-1 (arXiv:1910.02054); Megatron-LM: megatron/core/optimizer/distrib_optimizer.py"},
    ShardingRow{"zero2", true, true, false,
                "a replica keeps the optimizer's state and the gradient of a chunk of each weight and updates that "
                "chunk; once a step the new weights are gathered",
                "ZeRO-2 (arXiv:1910.02054)"},
    ShardingRow{"fsdp", true, true, true,
                "a replica keeps a chunk of each weight, its gradient and the optimizer's state of it; the weight is "
                "gathered for forward and again for backward of each micro-batch",
                "ZeRO-3 (arXiv:1910.02054); PyTorch's FSDP (arXiv:2304.11277)"},
};
inline constexpr auto sharding_names = names_in(shardings);
constexpr const ShardingRow& row_of(Sharding sharding) { return shardings[static_cast<std::size_t>(sharding)]; }

/// A sharded optimizer. Gradients are reduced but not gathered; the owner of a chunk updates its master weight, and
/// what the network computes with is gathered, cast to `gather` if it is given. Blocks and scales are those of the
/// whole weight, as where owners agree on the largest magnitude (FSDP's FP8 all-gather in torchao).
struct ShardOptions {
    Sharding sharding = Sharding::none;
    std::optional<Payload> gather{}; ///< none: the format of the master weight

    [[nodiscard]] const ShardingRow& row() const { return row_of(sharding); }
    /// Whether replicas divide anything: every row but `none` divides the optimizer's state.
    [[nodiscard]] bool is_sharded() const { return row().state; }
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
    ShardOptions shard{};
    std::int64_t warmup = 0; ///< number of steps in which the learning rate rises linearly
    std::uint64_t seed = 0;
};

/// The tensors of one parameter; m, v and compensation only if the optimizer has them.
struct ParameterTensors {
    TensorId weight;
    std::vector<TensorId> contributions; ///< the gradient of each replica
    TensorId gradient;                   ///< the gradient after all-reduce, which is unscaled, clipped and applied
    TensorId m, v, compensation;
    TensorId v_columns{}; ///< of a second moment in factors: v has a number for each row, this for each column
    TensorId master{};    ///< of a sharded optimizer: what it updates; `weight` is gathered from it
    TensorId gathered{};  ///< what is sent of `master`, less scales; it may be `weight`

    /// What the optimizer updates.
    [[nodiscard]] TensorId updated() const { return master ? master : weight; }
};

/// The program of a network for one precision, with all that a step consists of.
struct TrainingProgram {
    Program program;
    Network network;
    std::vector<ParameterTensors> parameters;
    std::vector<Parameter> initial; ///< how each parameter is initialised
    std::vector<Parameter> buffers; ///< and each running statistic
    /// Name and tensor of the layers' outputs that a run records, such as "h.0.attn.out", and of their gradients, such
    /// as "h.0.attn.out.grad".
    std::vector<std::pair<std::string, TensorId>> watched_activations, watched_gradients;
    std::vector<DelayedScale> delayed_scales; ///< filled by recipes with delayed scaling
    TensorId norm;                            ///< norm of all gradients, if they are clipped
    AllReduceOptions all_reduce{};
    ShardOptions shard{};
    int replicas = 1, micro_batches = 1;
    std::size_t gathering = 0; ///< where in program.update the weights are gathered, which a run begins with

    /// The gathering of weights.
    [[nodiscard]] std::span<const Instruction> gathers() const { return std::span(program.update).subspan(gathering); }
    /// How often a step gathers each weight. FSDP drops it after use (reshard_after_forward): it gathers once for
    /// forward and once for backward of each micro-batch.
    [[nodiscard]] int gathers_in_step() const { return shard.row().weights ? 2 * micro_batches : 1; }
    /// Whether a replica keeps only its chunks of gradients. Those of several micro-batches are added up whole before
    /// they are reduced, as under FSDP's no_sync().
    [[nodiscard]] bool divides_gradients() const { return shard.row().gradients && micro_batches == 1; }
    /// How many elements of a tensor a replica keeps that keeps only its chunk: the largest chunk.
    [[nodiscard]] std::int64_t share(std::int64_t elements) const { return (elements + replicas - 1) / replicas; }
};

/// The precision with a policy for each block that "first-N" and "last-N" name in this network.
Precision with_blocks(const TrainOptions& options, const Dataset& data);

/// The blocks of a weight that is cast whole. All its axes but the last make rows.
BlockGrid grid_of(const BlockScaling& scaling, const Shape& shape);

/// Throws std::invalid_argument for an all-reduce or sharding that other options do not allow.
void check_sharding(const TrainOptions& options);

/// The tensors that a step leaves for callers to read, besides state: outputs, the loss, the norm of gradients, the
/// gradients of parameters and of watched activations and, if they are `recorded`, these.
std::vector<TensorId> results_of(const TrainingProgram& training, bool recorded);

/// Throws std::invalid_argument if options contradict each other.
TrainingProgram build_training_program(const TrainOptions& options, const Dataset& data);

} // namespace amp

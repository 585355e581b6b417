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
    bool state, gradients, weights; ///< of which a replica keeps its own chunks alone
    std::string_view meaning, source;
};
inline constexpr std::array shardings = {
    ShardingRow{"none", false, false, false, "every replica keeps and updates everything", "PyTorch's DDP"},
    ShardingRow{"zero1", true, false, false, "a replica updates a chunk of each weight; new weights are gathered",
                "ZeRO-1; Megatron-LM's distributed optimizer"},
    ShardingRow{"zero2", true, true, false, "and keeps the gradient of that chunk alone", "ZeRO-2"},
    ShardingRow{"fsdp", true, true, true, "and that chunk of the weight, which is gathered for each use",
                "ZeRO-3; PyTorch's FSDP"},
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
    TensorId master{};   ///< of a sharded optimizer: what it updates; `weight` is gathered from it
    TensorId gathered{}; ///< what is sent of `master`, less scales; it may be `weight`

    /// What the optimizer updates.
    [[nodiscard]] TensorId updated() const { return master ? master : weight; }
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
    AllReduceOptions all_reduce{};
    ShardOptions shard{};
    int replicas = 1;
    std::size_t gathering = 0; ///< where in program.update the weights are gathered, which a run begins with

    /// The gathering of weights.
    [[nodiscard]] std::span<const Instruction> gathers() const { return std::span(program.update).subspan(gathering); }
    /// How many elements of a tensor a replica keeps that keeps only its chunk: the largest chunk.
    [[nodiscard]] std::int64_t share(std::int64_t elements) const { return (elements + replicas - 1) / replicas; }
};

/// Throws std::invalid_argument for an all-reduce or sharding that other options do not allow.
void check_sharding(const TrainOptions& options);

/// Throws std::invalid_argument if options contradict each other.
TrainingProgram build_training_program(const TrainOptions& options, const Dataset& data);

} // namespace amp

// What a step is going to do: its ops in words, and the memory that a run takes.
#pragma once

#include <ampscope/sim/train/trainer.h>

namespace amp {

/// One line of the plan of a step.
struct PlannedOp {
    std::string_view tape; ///< forward, backward, check, unscale, update
    std::string op, output;
    std::vector<std::string> inputs; ///< name, format and shape: "h.0.attn.q.linear fp16 64x32x16"
    std::string result;              ///< format and shape of the output
    std::string accumulate;          ///< the accumulator of products and sums; empty for other ops
    std::string rule;                ///< the rule that decided the formats
    std::string sends;               ///< what a replica sends in a collective; empty for other ops
    std::string tensor_cores;        ///< whether tensor cores can run a matrix product; empty for other ops
};

std::vector<PlannedOp> plan_of(const TrainingProgram& training);

/// Whether a product of that shape, of numbers in format a by numbers in format b, can run on tensor cores, and of
/// which generations, by the table of matrix hardware (accumulator.h).
std::string tensor_core_use(const op::Matmul& op, const FormatSpec& a, const FormatSpec& b);

/// The number of products in the longest sum of a step: of those in chosen accumulators, or of all if none was chosen.
/// With scales of blocks along k each block has a sum of its own.
std::int64_t longest_sum(const TrainingProgram& training);

/// Bits that a run keeps in memory, by purpose, for all parameters together.
struct MemoryAccount {
    std::int64_t parameters = 0; ///< number of parameters
    struct Row {
        std::string purpose; ///< master weights, weights, gradients, optimizer, activations ...
        FormatSpec format;
        std::int64_t elements = 0;
        bool per_parameter = true; ///< false for activations
        [[nodiscard]] double bytes() const { return static_cast<double>(elements) * format.bits() / 8; }
    };
    std::vector<Row> rows;
    /// The gradients again, in the formats in which backward computes them: for a weight that is cast, the format of
    /// the copy. Frameworks that widen gradients only while they apply them keep these instead of those of `rows`.
    std::vector<Row> computed_gradients;
    /// All but activations.
    [[nodiscard]] double bytes_per_parameter() const;
    /// The same, where gradients are kept as they were computed.
    [[nodiscard]] double bytes_with_computed_gradients() const;
};

MemoryAccount memory_of(const TrainingProgram& training);

} // namespace amp

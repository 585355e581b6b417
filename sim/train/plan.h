// What a step will do before it does it: its ops in words, and what a run keeps in memory.
#pragma once

#include <ampscope/sim/train/trainer.h>

namespace amp {

/// A line of the plan of a step.
struct PlannedOp {
    std::string_view tape; ///< forward, backward, check, unscale, update
    std::string op, output;
    std::vector<std::string> inputs; ///< "h.0.attn.q.linear fp16 64x32x16"
    std::string result;              ///< format and shape of the output
    std::string accumulate;          ///< of products and sums, else empty
    std::string rule;                ///< what decided the formats
    std::string tensor_cores;        ///< of matrix products, else empty
};

std::vector<PlannedOp> plan_of(const TrainingProgram& training);

/// Whether a product of such a shape, of numbers in format a by numbers in format b, can run on tensor cores: of which
/// generations, as the table of matrix hardware (accumulator.h) has them.
std::string tensor_core_use(const op::Matmul& op, const FormatSpec& a, const FormatSpec& b);

/// Bits that a run keeps, by purpose; of all parameters together.
struct MemoryAccount {
    std::int64_t parameters = 0; ///< how many
    struct Row {
        std::string purpose; ///< master weights, weights, gradients, optimizer, activations ...
        FormatSpec format;
        std::int64_t elements = 0;
        bool per_parameter = true; ///< activations are not
        [[nodiscard]] double bytes() const { return static_cast<double>(elements) * format.bits() / 8; }
    };
    std::vector<Row> rows;
    /// Without activations.
    [[nodiscard]] double bytes_per_parameter() const;
};

MemoryAccount memory_of(const TrainingProgram& training);

} // namespace amp

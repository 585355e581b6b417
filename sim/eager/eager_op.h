// Ops called one by one on the memory of a framework that computes eagerly, as PyTorch does. Each is a program of its
// own, built by the same Graph as a whole network, so that its products, casts with scales and gradients have the bits
// that they have there.
//
//     const EagerOp op("linear", precision("fp8-current"), "h.0.mlp.up", {x, weight, bias});
//     op.forward({x_data, weight_data, bias_data}, out_data, {});
//     op.backward({x_data, weight_data, bias_data}, grad_data, {x_grad, weight_grad, bias_grad}, {});
#pragma once

#include <ampscope/sim/backend/backend.h>
#include <ampscope/sim/program/graph.h>

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace amp {

/// An operand as the framework holds it: in C order, in FP32, FP16 or BF16.
struct EagerOperand {
    Shape shape{}; ///< extents of at least 1
    FormatSpec format = fp32_format();
    bool weight = false; ///< a parameter of the layer
    bool needs_gradient = false;
    bool absent = false; ///< a bias that the layer does not have
};

/// What delayed scaling remembers of one tensor between steps.
struct EagerScale {
    op::DelayedRule rule;
    bool most_recent = false;
    std::vector<float> scale, history;
};

/// What delayed scaling remembers of the tensors of a layer. Calls of different shapes of one layer share it.
struct EagerState {
    std::vector<EagerScale> scales; ///< the scales of the casts in their order; calls fill it
    /// The end of a step: see UpdateScale.
    void advance();
};

/// What casts with scales did to the operands of a layer, whose calls add to it.
struct EagerCasts {
    std::array<ScalingCounts, 3> counts{}; ///< by OperandRole; a cast that backward repeats counts once
};

/// What varies from call to call.
struct EagerContext {
    std::uint64_t seed = 0; ///< seeds stochastic rounding
    std::uint32_t step = 0;
    std::uint32_t call = 0;      ///< number of this call of the layer in the step: less than 2^24
    bool training = true;        ///< whether delayed scaling remembers what it sees
    int threads = 0;             ///< 0: every core; results do not depend on it
    EagerState* state = nullptr; ///< needed by recipes with delayed scaling, one a layer
    EagerCasts* casts = nullptr; ///< null: casts are not counted
};

/// What a call says besides operands: numbers, and the text by which the op was named, "fused:8x4,o=bf16" for instance.
struct EagerSettings {
    std::span<const double> numbers;
    std::string_view text;
    [[nodiscard]] double operator[](std::size_t i) const { return numbers[i]; }
};

/// The ops that can be called: what each takes, and how a graph appends it.
struct EagerRow {
    std::string_view name;
    std::size_t operands, settings; ///< their numbers, absent operands included
    std::string_view meaning;
    TensorId (*append)(Graph& g, std::span<const TensorId> operands, const EagerSettings& settings);
    bool product = false; ///< whether it multiplies matrices, in backward also by the gradient of its result
};
std::span<const EagerRow> eager_ops();

class EagerOp {
  public:
    /// The op of that name ("fused:8x4,o=bf16": with a text) in a layer of that name. Of the precision its operand
    /// formats, accumulators and scaling recipe count, as they are for that layer. The result has the format `result`;
    /// its gradient, and those of operands that are not weights, have the format of the first operand, or of the result
    /// if that operand is FP32, which casts with scales take as it is; the gradient of a result in FP32 stays in FP32
    /// unless the op is a product. Throws std::invalid_argument for unknown names, and for shapes and settings that do
    /// not fit.
    EagerOp(std::string_view op, const Precision& precision, std::string_view layer,
            std::span<const EagerOperand> operands, const FormatSpec& result, std::span<const double> settings = {});

    [[nodiscard]] const Shape& shape() const { return program_[out_].shape; }
    [[nodiscard]] const FormatSpec& format() const { return program_[out_].format; }
    /// Of the result's gradient, if there is one.
    [[nodiscard]] const FormatSpec& gradient_format() const { return program_[out_gradient_].format; }
    [[nodiscard]] const Program& program() const { return program_; }

    /// Writes the result. Operands are in their order, null where absent.
    void forward(std::span<const void* const> operands, void* out, const EagerContext& context) const;
    /// Writes the gradients of operands that need one, in each one's format, from that of the result, which has its
    /// format. What forward computed on the way is computed again, with the same bits.
    void backward(std::span<const void* const> operands, const void* gradient, std::span<void* const> gradients,
                  const EagerContext& context) const;

  private:
    /// Where a tensor lies while a tape runs.
    struct Place {
        TensorId id;
        std::size_t count = 0;
        std::size_t caller = 0; ///< index among the caller's tensors, or their number: the caller does not hold it
        bool written = false;
        bool in_place = false;   ///< used where the caller holds it; else in scratch memory
        std::size_t scratch = 0; ///< where there
    };
    struct Layout {
        std::vector<Place> places;
        std::size_t scratch = 0;                               ///< size of scratch memory
        std::vector<std::pair<TensorId, OperandRole>> casts{}; ///< results of casts with scales, if they are counted
    };
    [[nodiscard]] TensorId storage(TensorId id) const { return program_[id].storage ? program_[id].storage : id; }
    [[nodiscard]] Layout layout(const Tape& tape, std::vector<TensorId> callers) const;
    void run(const Tape& tape, const Layout& layout, std::vector<void*> callers, const EagerContext& context) const;

    Program program_;
    std::vector<TensorId> operands_, gradients_;
    TensorId out_, out_gradient_;
    std::vector<DelayedScale> delayed_;
    Layout forward_, backward_;
};

} // namespace amp

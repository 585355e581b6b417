// Casts with scales, and the scales of delayed scaling.
#pragma once

#include <ampscope/formats/block.h>
#include <ampscope/sim/ops/op.h>

namespace amp {

/// What a matrix product must know of a scaled operand: x ~ q * scale of its block * tensor_scale.
struct OperandScale {
    TensorId scale;        ///< decode scales of the blocks, FP32; none: the operand is not scaled
    TensorId tensor_scale; ///< NVFP4: one more for the whole tensor
    BlockScaling scaling{};
};

/// out = in scaled and rounded to scaling.element, scale = the decode scales of its blocks: see formats/block.h. The
/// last axis of `in` is the columns, all others are rows. With delayed scaling there is one block, whose encode scale
/// is read from `delayed`, and history[0] grows to the largest magnitude (in training; NaN are passed over).
struct Quantize {
    static constexpr std::string_view name = "quantize";
    TensorId in, out, scale, tensor_scale, delayed, history;
    BlockScaling scaling{};
    Rounding rounding = Rounding::nearest_even;
    std::uint32_t stream = 0; ///< of stochastic rounding
    [[nodiscard]] auto inputs() const { return std::array{in, delayed}; }
    [[nodiscard]] auto outputs() const { return std::array{out, scale, tensor_scale}; }
};
void run(Cpu& cpu, const Quantize& op);

/// out = in * the decode scale of its block, exactly, rounded once to the format of out: what a kernel does with a cast
/// tensor that it computes with in a wider format.
struct Dequantize {
    static constexpr std::string_view name = "dequantize";
    TensorId in, scale, out;
    BlockScaling scaling{};
    [[nodiscard]] auto inputs() const { return std::array{in, scale}; }
    [[nodiscard]] auto outputs() const { return std::array{out}; }
};
void run(Cpu& cpu, const Dequantize& op);

/// The end of a step of delayed scaling: scale = max * 2^-margin / amax, where amax is the largest of the history, or
/// its newest; FLT_MAX where that is infinite; unchanged where amax is not finite. Then the history moves on by one. A
/// tensor that was not cast in this step (history[0] is 0) keeps both.
struct UpdateScale {
    static constexpr std::string_view name = "update_scale";
    TensorId history, scale;
    float max = 448;
    int margin = 0;
    bool most_recent = false;
    [[nodiscard]] auto inputs() const { return std::array{history}; }
    [[nodiscard]] auto outputs() const { return std::array{scale}; }
};
void run(Cpu& cpu, const UpdateScale& op);

} // namespace amp

// Casts with scales, and the scales of delayed scaling.
#pragma once

#include <ampscope/formats/block.h>
#include <ampscope/sim/program/ops/op.h>

namespace amp::op {

/// What a matrix product needs to know of a scaled operand: x ~ q * scale of its block * upper / scaling's divisor.
struct OperandScale {
    TensorId scale; ///< FP32 decode scales of the blocks; no tensor: the operand is not scaled
    TensorId upper; ///< upper scales (see BlockScaling), if the rule has them
    BlockScaling scaling{};
};

/// How delayed scaling derives the encode scale from an amax. TransformerEngine: max * 2^-margin / amax, or FLT_MAX if
/// that is infinite; the scale stays the same if amax is 0 or not finite. MS-AMP: 2^(floor(log2(max / amax)) - margin);
/// the scale stays the same if amax is 0, and becomes its own inverse if amax is infinite, as MS-AMP's code takes
/// 2^-infinity for a small scale.
struct DelayedRule {
    float max = 448;
    int margin = 0;
    bool ms_amp = false;

    bool operator==(const DelayedRule&) const = default;
};

/// out = in, scaled and rounded to scaling.element; scale = the decode scales of its blocks, upper = the scales above
/// them (see formats/block.h). The last axis of `in` is the columns, all others together are the rows. With delayed
/// scaling there is one block; its encode scale is read from `delayed`, and history[0] becomes the largest magnitude so
/// far (in training; NaNs are ignored). If `delayed` has several elements, each replica has its own, and its own row of
/// `history`. In MS-AMP the very first cast sets the scale from its own amax.
struct Quantize {
    static constexpr std::string_view name = "quantize";
    TensorId in, out, scale, upper, delayed, history;
    BlockScaling scaling{};
    Rounding rounding = Rounding::nearest_even;
    std::uint8_t random_bits = 32; ///< stochastic rounding draws so many for each number
    std::uint32_t stream = 0;      ///< and its random stream
    DelayedRule rule{};
    [[nodiscard]] auto inputs() const { return std::array{in, delayed}; }
    [[nodiscard]] auto outputs() const { return std::array{out, scale, upper}; }
};
void run(Cpu& cpu, const Quantize& op);
void run(Cuda& cuda, const Quantize& op);

/// Replaces rows, in groups of `size` (16 or 32), by their random Hadamard transform, which spreads outliers: row j of
/// a group is the sum over i of s_i * (-1)^(number of bits that i and j have in common) * size^(-1/2) * row i, in
/// double in the order of i, rounded once to the format of out; size^(-1/2) is rounded to the format of `in`. The signs
/// s are TransformerEngine's, or drawn in every step. A product that sums over the rows of two tensors, both
/// transformed, is unchanged except for roundings. Rows that do not fill a group stay as they are. `along_columns`: the
/// same with the numbers of each row.
struct Hadamard {
    static constexpr std::string_view name = "hadamard";
    static constexpr std::string_view accumulation = "double, in the order of rows";
    static constexpr std::uint32_t te_signs = 0b1101'0111'1110'1000; ///< bit i: s_i is -1
    TensorId in, out;
    int size = 16;
    bool along_columns = false, draws_signs = false;
    std::uint32_t stream = 0; ///< random stream of the signs; both operands of a product have the same
    [[nodiscard]] auto inputs() const { return std::array{in}; }
    [[nodiscard]] auto outputs() const { return std::array{out}; }
};
void run(Cpu& cpu, const Hadamard& op);
void run(Cuda& cuda, const Hadamard& op);

/// out = in * the factor of its block (BlockScaling::factor), exactly, rounded once to the format of out; with upper
/// scales, to FP32 first, as TE's kernel has it. It is for what computes with a narrow tensor in a wider format.
struct Dequantize {
    static constexpr std::string_view name = "dequantize";
    TensorId in, scale, upper, out;
    BlockScaling scaling{};
    [[nodiscard]] auto inputs() const { return std::array{in, scale, upper}; }
    [[nodiscard]] auto outputs() const { return std::array{out}; }
};
void run(Cpu& cpu, const Dequantize& op);
void run(Cuda& cuda, const Dequantize& op);

/// The end of a step of delayed scaling, for every row of the history: the scale follows from the largest amax of the
/// history, or the newest if `most_recent`; then the history moves on by one. For a tensor that was not cast in this
/// step (history[0] is 0) both stay as they are.
struct UpdateScale {
    static constexpr std::string_view name = "update_scale";
    TensorId history, scale;
    DelayedRule rule{};
    bool most_recent = false;
    [[nodiscard]] auto inputs() const { return std::array{history}; }
    [[nodiscard]] auto outputs() const { return std::array{scale}; }
};
void run(Cpu& cpu, const UpdateScale& op);
void run(Cuda& cuda, const UpdateScale& op);

} // namespace amp::op

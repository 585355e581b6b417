// Automatic mixed precision as PyTorch decides it: which format an op computes in, given its operands.
#pragma once

#include <ampscope/formats/spec.h>

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace amp {

/// What autocast does to a call of an op (aten/src/ATen/autocast_mode.h).
enum class AutocastClass : std::uint8_t {
    unlisted,        ///< runs in the formats of its operands, mixed ones promoted as without autocast
    lower_precision, ///< operands are cast to autocast's format, which the result has too
    fp32,            ///< operands are cast to FP32, which the result has too
    fp32_output,     ///< operands stay as they are, the result is FP32
    widest,          ///< operands are cast to the widest among them and autocast's format
    banned           ///< refused: the result could not be represented
};

/// Whose lists apply: those for CUDA devices (FP16 by default) or those for the processor (BF16 by default).
enum class AutocastPolicy : std::uint8_t { cuda, cpu };
inline constexpr std::array<std::string_view, 2> autocast_policy_names = {"cuda", "cpu"};

/// An op of the trainer and its class under either policy.
struct AutocastRow {
    std::string_view name;
    AutocastClass cuda, cpu;
    bool promotes = true; ///< without a cast, operands of different formats meet in the widest; else PyTorch raises
};

/// Every op of the trainer. PyTorch 2.x's lists for CUDA; for the processor, the lists as PyTorch 1.13 and 2.x agree on
/// them. A composite op has the class of what it consists of: cross_entropy is log_softmax and nll_loss.
std::span<const AutocastRow> autocast_rows();

/// The row of an op. Throws std::invalid_argument, naming the known ones, for another.
const AutocastRow& autocast_row(std::string_view op);

/// The state of a region of code.
struct Autocast {
    bool enabled = false;
    AutocastPolicy policy = AutocastPolicy::cuda;
    FormatSpec low = format("fp16"); ///< fp16 or bf16
};

/// How one call is carried out.
struct OpFormats {
    std::vector<FormatSpec> inputs; ///< each operand's format when the op reads it: where it differs, it was cast
    FormatSpec output;
    AutocastClass rule = AutocastClass::unlisted; ///< what decided; unlisted outside an enabled region
};

/// Decides for a call of `op` on operands of these formats (fp32, fp16 or bf16; at least one). Throws
/// std::invalid_argument where PyTorch raises: a banned op, operands of different formats for an op that does not
/// promote them, a half format other than autocast's where the widest is asked for.
OpFormats op_formats(const Autocast& autocast, std::string_view op, std::span<const FormatSpec> inputs);

std::string_view name_of(AutocastClass c);

} // namespace amp

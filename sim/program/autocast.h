// PyTorch's automatic mixed precision: which format an op computes in, given the formats of its operands.
#pragma once

#include <ampscope/formats/spec.h>

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace amp {

/// What autocast does to a call of an op (aten/src/ATen/autocast_mode.h).
enum class AutocastClass : std::uint8_t {
    unlisted,        ///< runs in the formats of its operands; different ones are promoted as without autocast
    lower_precision, ///< operands are cast to autocast's format, and the result has it
    fp32,            ///< operands are cast to FP32, and the result is FP32
    fp32_output,     ///< operands stay as they are, and the result is FP32
    widest,          ///< operands are cast to the widest among them and autocast's format
    banned           ///< refused: the result could not be represented
};

/// Whose lists apply: those for CUDA devices (default format FP16) or those for the processor (default format BF16).
enum class AutocastPolicy : std::uint8_t { cuda, cpu };
inline constexpr std::array<std::string_view, 2> autocast_policy_names = {"cuda", "cpu"};

/// An op of the trainer and its class under each policy.
struct AutocastRow {
    std::string_view name;
    AutocastClass cuda, cpu;
    bool promotes = true; ///< without a cast, different formats are promoted to the widest; else PyTorch raises
};

/// All ops of the trainer. The lists for CUDA are PyTorch 2.x's; those for the processor are what PyTorch 1.13 and 2.x
/// agree on. A composite op has the class of its parts: cross_entropy is log_softmax and nll_loss.
std::span<const AutocastRow> autocast_rows();

/// The row of an op. Throws std::invalid_argument, listing the names, for any other.
const AutocastRow& autocast_row(std::string_view op);

/// The autocast settings of a region of code.
struct Autocast {
    bool enabled = false;
    AutocastPolicy policy = AutocastPolicy::cuda;
    FormatSpec low = format("fp16"); ///< fp16 or bf16
};

/// The formats of one call of an op.
struct OpFormats {
    std::vector<FormatSpec> inputs; ///< format in which each operand is read; an operand of another format is cast
    FormatSpec output;
    AutocastClass rule = AutocastClass::unlisted; ///< the class that decided; unlisted outside an enabled region
};

/// Decides the formats of a call of `op` on operands of these formats (fp32, fp16 or bf16; at least one). Throws
/// std::invalid_argument where PyTorch raises: for a banned op, for operands of different formats of an op that does
/// not promote, and for a half format other than autocast's where the widest is asked for.
OpFormats op_formats(const Autocast& autocast, std::string_view op, std::span<const FormatSpec> inputs);

std::string_view name_of(AutocastClass c);

} // namespace amp

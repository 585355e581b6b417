// PyTorch's automatic mixed precision: which format an op computes in, given the formats of its operands.
#pragma once

#include <ampscope/formats/spec.h>

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace amp {

/// What autocast does to a call of an op (aten/src/ATen/autocast_mode.h).
enum class AutocastClass : std::uint8_t {
    unlisted,        ///< runs in the formats of its operands; different ones are promoted as without autocast
    lower_precision, ///< operands are cast to autocast's format, and the result has it
    fp32,            ///< operands are cast to FP32, and the result is FP32
    fp32_output,     ///< operands stay as they are, and the result is FP32 unless the call names a dtype
    widest,          ///< operands are cast to FP32 if one of them is FP32, and else have autocast's format
    banned           ///< refused: the result could not be represented
};

/// Whose lists apply: those of the kind of device that a region of code is for.
enum class AutocastPolicy : std::uint8_t { cuda, cpu, mps, xpu };
inline constexpr std::array<std::string_view, 4> autocast_policy_names = {"cuda", "cpu", "mps", "xpu"};
constexpr std::string_view name_of(AutocastPolicy policy) {
    return autocast_policy_names[static_cast<std::size_t>(policy)];
}

/// The format that autocast casts to on such a device unless the region names another.
constexpr FormatSpec default_format(AutocastPolicy policy) {
    return format(policy == AutocastPolicy::cpu ? "bf16" : "fp16");
}

/// An op and its class on each kind of device.
struct AutocastRow {
    std::string_view name;
    AutocastClass cuda, cpu, mps, xpu;
    bool promotes = true;     ///< without a cast, different formats are promoted to the widest; else PyTorch raises
    bool takes_dtype = false; ///< has an argument `dtype`: the format of its result

    [[nodiscard]] constexpr AutocastClass of(AutocastPolicy policy) const {
        switch (policy) {
        case AutocastPolicy::cpu: return cpu;
        case AutocastPolicy::mps: return mps;
        case AutocastPolicy::xpu: return xpu;
        default: return cuda;
        }
    }
};

/// All ops of PyTorch's lists (tests/data/torch/autocast_lists.json says of which version), by the names that its
/// dispatcher knows them by, and the trainer's other ops, which no list has. A composite op that no list has gets its
/// formats from its parts: cross_entropy is log_softmax and nll_loss.
std::span<const AutocastRow> autocast_rows();

/// The row of an op. An op that no list has, whatever its name, is unlisted everywhere, as in PyTorch.
AutocastRow autocast_row(std::string_view op);

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

/// Decides the formats of a call of `op` on operands of these formats (fp32, fp16 or bf16; at least one), in the order
/// of its arguments. `dtype` is that argument of the op, if it is given: the result has it, whatever the class, while
/// the operands are read as ever. Throws std::invalid_argument where PyTorch raises: for a banned op, for operands of
/// different formats of an op that does not promote, for a half format other than autocast's where the widest is asked
/// for, and for a dtype of an op that takes none.
OpFormats op_formats(const Autocast& autocast, std::string_view op, std::span<const FormatSpec> inputs,
                     const std::optional<FormatSpec>& dtype = {});

std::string_view name_of(AutocastClass c);

} // namespace amp

// How the products of a layer are computed: what can differ from one layer of a network to another.
#pragma once

#include <ampscope/sim/program/ops/matmul.h>
#include <ampscope/sim/program/scaling_recipe.h>

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace amp {

struct LayerArithmetic {
    FormatSpec operands = format("fp32"); ///< format that matrix products round their operands to: see MatmulArithmetic
    Rounding operand_rounding = Rounding::nearest_even;
    /// Accumulators of matrix products in forward and backward: the first that takes both operands, else FP32 chains.
    std::vector<Accumulator> accumulators{}, backward_accumulators{};
    std::optional<ScalingRecipe> scaling{}; ///< recipe of linear layers and convolutions; none: not scaled
    bool keeps_wide = false;                ///< not scaled because its policy says so: not served narrow either
    bool autocast_off = false;              ///< outside autocast, in FP32

    [[nodiscard]] op::MatmulArithmetic product(const FormatSpec& a, const FormatSpec& b, bool backward) const;
    /// The format to which sums other than matrix products are rounded at every addition: that of the first chain among
    /// `accumulators`, else FP32.
    [[nodiscard]] FormatSpec sums() const;
    /// Sets what a key of precision() about products says. Returns whether the key is one of them. Throws
    /// std::invalid_argument for values that they do not have.
    bool set(std::string_view key, std::string_view value);

    static constexpr std::string_view keys = "operands, operand-rounding, accumulate, accumulate-forward, "
                                             "accumulate-backward, scaling, scaling-...";
};

/// Throws std::invalid_argument for a format of scales, which holds no tensor; else returns the format.
FormatSpec tensor_format(std::string_view key, std::string_view value);

/// Reads names of accumulators, joined by +. Throws std::invalid_argument.
std::vector<Accumulator> accumulators(std::string_view text);
std::string names_of(std::span<const Accumulator> accumulators);

} // namespace amp

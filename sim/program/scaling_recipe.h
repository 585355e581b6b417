// How linear layers are trained in FP8 and narrower: which format each operand has, what shares a scale, and from what
// the scale follows. The frameworks' recipes are rows of one table.
#pragma once

#include <ampscope/formats/block.h>

#include <optional>
#include <span>
#include <string_view>

namespace amp {

/// What an operand of a linear layer's three products is.
enum class OperandRole : std::uint8_t { input, weight, gradient };

struct OperandScaling {
    FormatSpec element = format("e4m3");
    /// The block: numbers along the axis that the product sums over, and across it; 0: as many as there are.
    int along = 0, across = 0;
    ScaleRule rule = ScaleRule::te;
    Rounding rounding = Rounding::nearest_even;
    bool hadamard = false; ///< transformed first where a product sums over rows: see Hadamard

    /// As blocks of a tensor in C order of which a product sums over the rows, or else over the columns.
    [[nodiscard]] BlockScaling blocks(bool sums_rows) const {
        return {.element = element,
                .rows = sums_rows ? along : across,
                .columns = sums_rows ? across : along,
                .rule = rule};
    }
};

struct ScalingRecipe {
    std::string_view name, source;
    OperandScaling input{}, weight{}, gradient{};
    std::optional<OperandScaling> weight_in_backward{}; ///< where it differs
    /// The scale of a step follows from the amax of earlier ones: so many, their largest or the last.
    int history = 0; ///< 0: from the tensor itself
    bool most_recent = false;
    bool reduces_amax = true;              ///< replicas share a history, that of their largest amax
    bool ms_amp = false;                   ///< powers of two by MS-AMP's rule: see UpdateScale
    int margin = 0;                        ///< powers of two between the largest magnitude and the largest value
    bool weight_gradient_unscaled = false; ///< the product that makes it reads the tensors as they were

    [[nodiscard]] const OperandScaling& operand(OperandRole role, bool backward) const {
        if (role == OperandRole::weight && backward && weight_in_backward) return *weight_in_backward;
        return role == OperandRole::input ? input : role == OperandRole::weight ? weight : gradient;
    }
    [[nodiscard]] bool delayed() const { return history > 0; }
};

/// What a server keeps and computes in narrow formats; none: as the precision has it.
struct Serving {
    std::optional<OperandScaling> weights{}, activations{}; ///< of linear layers
    std::optional<OperandScaling> kv_cache{};               ///< of attention's keys and values
};

std::span<const ScalingRecipe> scaling_recipes();

/// The recipe of that name. Throws std::invalid_argument, naming those that there are.
const ScalingRecipe& scaling_recipe(std::string_view name);

} // namespace amp

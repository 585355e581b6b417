// How linear layers are trained in FP8 and narrower formats: the format of each operand, the blocks that share a scale,
// and how the scale is found. The frameworks' recipes are rows of one table.
#pragma once

#include <ampscope/formats/block.h>

#include <optional>
#include <span>
#include <string_view>

namespace amp {

/// The role of an operand in the three products of a linear layer (forward and two gradients).
enum class OperandRole : std::uint8_t { input, weight, gradient };

struct OperandScaling {
    FormatSpec element = format("e4m3");
    /// The block: its length along the axis that the product sums over, and across it; 0: the whole tensor.
    int along = 0, across = 0;
    ScaleRule rule = ScaleRule::te;
    Rounding rounding = Rounding::nearest_even;
    bool hadamard = false; ///< apply the Hadamard transform first if the product sums over rows: see Hadamard

    /// The blocks of a tensor in C order, for a product that sums over its rows if `sums_rows`, else over its columns.
    [[nodiscard]] BlockScaling blocks(bool sums_rows) const {
        return {.element = element,
                .rows = sums_rows ? along : across,
                .columns = sums_rows ? across : along,
                .rule = rule};
    }

    bool operator==(const OperandScaling&) const = default;
};

/// Which tensors a source refuses because its blocks do not fill them.
enum class ShapeRule : std::uint8_t {
    any,                ///< none: a scale for the whole tensor or row
    transformer_engine, ///< those of one dimension, and of axes that the block does not divide (is_quantizable)
    deepseek,           ///< activations and gradients whose last axis the block does not divide
    ocp,                ///< OCP MX 1.0 leaves it open
};

struct ScalingRecipe {
    std::string_view name;
    std::string_view precision{}; ///< name of the row of precisions() that trains with it; empty: none does
    std::string_view source;
    ShapeRule shapes; ///< has no default, so that every row states it
    OperandScaling input{}, weight{}, gradient{};
    std::optional<OperandScaling> weight_in_backward{}; ///< scaling of the weight in backward, if it differs
    /// Delayed scaling: the scale of a step follows from the amax of earlier steps, the largest or the last.
    int history = 0; ///< number of steps in the history; 0: the scale follows from the tensor itself
    bool most_recent = false;
    bool reduces_amax = true;              ///< replicas share one history, of the largest amax among them
    bool ms_amp = false;                   ///< power-of-two scales by MS-AMP's rule: see UpdateScale
    int margin = 0;                        ///< powers of two between the scaled amax and the format's largest value
    bool weight_gradient_unscaled = false; ///< the product for the weight's gradient reads the original tensors

    [[nodiscard]] const OperandScaling& operand(OperandRole role, bool backward) const {
        if (role == OperandRole::weight && backward && weight_in_backward) return *weight_in_backward;
        return role == OperandRole::input ? input : role == OperandRole::weight ? weight : gradient;
    }
    [[nodiscard]] bool delayed() const { return history > 0; }

    bool operator==(const ScalingRecipe&) const = default;
};

/// What a server keeps and computes in narrow formats; where there is none, formats are the precision's.
struct Serving {
    std::optional<OperandScaling> weights{}, activations{}; ///< scaling in linear layers
    std::optional<OperandScaling> kv_cache{};               ///< scaling of attention's keys and values
    bool replaces_recipes = false;                          ///< recipes that layers have for training do not count
};

std::span<const ScalingRecipe> scaling_recipes();

/// The recipe that the precision of that name trains with; null for a precision without one, and for any other name.
const ScalingRecipe* recipe_of_precision(std::string_view precision);

/// The recipe of that name. Throws std::invalid_argument, listing the names, for any other.
const ScalingRecipe& scaling_recipe(std::string_view name);

} // namespace amp

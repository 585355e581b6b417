// How linear layers are trained in FP8 and narrower formats: the format of each operand, the blocks that share a scale,
// and how the scale is found. The frameworks' recipes are rows of one table.
#pragma once

#include <ampscope/formats/block.h>

#include <array>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace amp {

/// The role of an operand in the three products of a linear layer (forward and two gradients).
enum class OperandRole : std::uint8_t { input, weight, gradient };

struct OperandScaling {
    FormatSpec element = format("e4m3");
    /// The block: its length along the axis that the product sums over, and across it; 0: the whole tensor.
    int along = 0, across = 0;
    ScaleRule rule = ScaleRule::te;
    UpperScales upper{};
    float clip = 1; ///< the part of the largest magnitude or range that is kept: see BlockScaling
    Rounding rounding = Rounding::nearest_even;
    std::uint8_t random_bits = 32;          ///< stochastic rounding draws so many for each number
    FormatSpec scale = format("fp32");      ///< scales by the rule amax have it
    Rounding scale_rounding = Rounding::up; ///< scales by the rule amax are rounded so
    bool requantizes = false; ///< in backward, casts what the forward cast is read as (rowwise_dequantized of TE)

    /// The blocks of a tensor in C order, for a product that sums over its rows if `sums_rows`, else over its columns.
    [[nodiscard]] BlockScaling blocks(bool sums_rows) const {
        return {.element = element,
                .rows = sums_rows ? along : across,
                .columns = sums_rows ? across : along,
                .rule = rule,
                .upper = upper,
                .scale = scale,
                .scale_rounding = scale_rounding,
                .clip = clip};
    }

    [[nodiscard]] FormatSpec scale_format() const { return blocks(false).scale_format(); }

    bool operator==(const OperandScaling&) const = default;
};

/// A random Hadamard transform of both operands of a product, along the axis that it sums over, before they are cast:
/// see op::Hadamard. The product stays the same but for roundings.
struct Rotation {
    std::string_view name = "off";
    int size = 0;               ///< how many numbers are mixed; 0: none
    bool every_product = false; ///< in both products of backward; otherwise in that for the weight's gradient
    bool draws_signs = false;   ///< in every step; otherwise they are TransformerEngine's
    bool wide = false;          ///< keeps the result in FP32; otherwise it is rounded to the operand's format
    std::string_view source{};

    constexpr bool operator==(const Rotation& other) const { return name == other.name; }
};

inline constexpr std::array rotations = {
    Rotation{},
    Rotation{"te", 16, false, false, false, "TransformerEngine: 16 rows, fixed signs, the weight's gradient"},
    Rotation{"random", 16, false, true, false, "torchtitan: the same with signs drawn in every step"},
    Rotation{"quartet", 32, true, true, true, "Quartet II: 32, signs drawn in every step, both products of backward"},
};

/// What the products of backward read of a layer with a recipe.
enum class BackwardOperands : std::uint8_t {
    scaled,
    weight_gradient_unscaled, ///< as scaled, but the weight's gradient from the tensors as they were (torchao)
    high_precision,           ///< tensors as they were, and the gradient (TE: backward_override)
    dequantized,              ///< what the forward casts are read as, and the gradient (TE: backward_override)
};

inline constexpr std::array<std::string_view, 4> backward_operands_names = {"scaled", "weight-gradient-unscaled",
                                                                            "high-precision", "dequantized"};

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
    /// Scaling of input and weight in backward, if it differs.
    std::optional<OperandScaling> input_in_backward{}, weight_in_backward{};
    Rotation rotation{};
    BackwardOperands backward = BackwardOperands::scaled;
    /// Delayed scaling: the scale of a step follows from the amax of earlier steps, the largest or the last.
    int history = 0; ///< number of steps in the history; 0: the scale follows from the tensor itself
    bool most_recent = false;
    bool reduces_amax = true; ///< replicas share one history, of the largest amax among them
    bool ms_amp = false;      ///< power-of-two scales by MS-AMP's rule: see UpdateScale
    int margin = 0;           ///< powers of two between the scaled amax and the format's largest value

    [[nodiscard]] const OperandScaling& operand(OperandRole role, bool in_backward) const {
        if (role == OperandRole::weight && in_backward && weight_in_backward) return *weight_in_backward;
        if (role == OperandRole::input && in_backward && input_in_backward) return *input_in_backward;
        return role == OperandRole::input ? input : role == OperandRole::weight ? weight : gradient;
    }
    /// Whether that operand of a product is rotated, which sums over the operand's rows if `sums_rows`.
    [[nodiscard]] bool rotates(OperandRole role, bool sums_rows) const {
        if (rotation.size == 0) return false;
        if (role == OperandRole::weight) return rotation.every_product && sums_rows;
        return sums_rows || (rotation.every_product && role == OperandRole::gradient);
    }
    /// Whether backward's product for the gradient of the weight, or of the input, reads tensors without scales.
    [[nodiscard]] bool reads_unscaled(bool for_weight) const {
        return backward != BackwardOperands::scaled &&
               (for_weight || backward != BackwardOperands::weight_gradient_unscaled);
    }
    [[nodiscard]] bool delayed() const { return history > 0; }
    /// Whether the source does not cast a tensor of so many rows and columns, because its blocks do not fill it. Here
    /// they are cast all the same: the last block of a line has what is left.
    [[nodiscard]] bool leaves_out(OperandRole role, std::int64_t rows, std::int64_t columns) const;

    bool operator==(const ScalingRecipe&) const = default;
};

/// What a server keeps and computes in narrow formats; where there is none, formats are the precision's.
struct Serving {
    std::optional<OperandScaling> weights{}, activations{}; ///< scaling in linear layers
    std::optional<OperandScaling> kv_cache{};               ///< scaling of attention's keys and values
    bool replaces_recipes = false;                          ///< recipes that layers have for training do not count
};

std::span<const ScalingRecipe> scaling_recipes();

/// Reads "[NAME,]key=value,...": calls named(name, whether it comes first) for what has no value, then set(key, value)
/// for each key. Of the options of a recipe (set_option), what is set later overrides what is set before: those of all
/// operands come before those of one, whatever their order in the text. Throws std::invalid_argument for a key that is
/// given twice.
void read_keys(std::string_view text, const std::function<void(std::string_view, bool)>& named,
               const std::function<void(std::string_view, std::string_view)>& set);

/// Sets an option of a recipe: what follows "scaling-" in a precision's text. Throws std::invalid_argument for a key or
/// value that it does not have. Once all are set, check_options() says which of them do not go together.
void set_option(ScalingRecipe& recipe, std::string_view key, std::string_view value);

/// The block of an operand: "ACROSSxALONG" as in "1x16"; 0 for the whole extent. Throws std::invalid_argument.
void set_block(OperandScaling& operand, std::string_view value);

/// Throws std::invalid_argument for options of an operand that do not go together, in whatever order they were set.
void check_options(const ScalingRecipe& recipe);
/// The options, for messages.
std::string recipe_options();

/// The recipe that the precision of that name trains with; null for a precision without one, and for any other name.
const ScalingRecipe* recipe_of_precision(std::string_view precision);

/// The recipe of that name. Throws std::invalid_argument, listing the names, for any other.
const ScalingRecipe& scaling_recipe(std::string_view name);

/// A number as an option's value has it. Throws std::invalid_argument for anything but a number from `least` to `most`.
int whole_number(std::string_view text, int least, int most);

} // namespace amp
